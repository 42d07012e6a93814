"""The tests. A run is an item's set-up and its judgement the test, so that pytest's own words fit:

the harness could not do its work             ERROR
this machine cannot run it                    SKIPPED (for GPUs with --require-gpus: FAILED)
a guarantee is broken, or nothing is proven   FAILED (the second headed UNKNOWN)
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from harness.errors import HarnessError, UnavailableError
from harness.plugin.options import as_typed
from harness.plugin.session import runs_of

if TYPE_CHECKING:
    from harness.expect import Judgement
    from harness.plan import Device
    from harness.scenario import Scenario


class RunItem(pytest.Item):
    """A test whose set-up gives a judgement.

    ``user_properties`` carry the result to the terminal, to JUnit and from pytest-xdist's workers to their controller.
    """

    title = ""
    judgement: Judgement | None = None  # from set-up
    run_dir: Path
    unavailable: UnavailableError | None = None

    def produce(self) -> tuple[Judgement, Path, float | None]:
        """The judgement, the run directory, and how many seconds the run took (None: it did not run now)."""
        raise NotImplementedError

    def may_skip(self) -> bool:
        return True

    def replay(self) -> str:
        """The command that runs the same again; empty if there is none."""
        return ""

    def setup(self) -> None:
        try:
            self.judgement, self.run_dir, duration_s = self.produce()
        except HarnessError as error:
            trouble = error  # reported below: from in here pytest would print the chain of exceptions too
        else:
            self._record(self.judgement, duration_s)
            return
        if not isinstance(trouble, UnavailableError):
            pytest.fail(f"{type(trouble).__name__}: {trouble}", pytrace=False)
        if self.may_skip():
            pytest.skip(str(trouble))
        self.unavailable = trouble

    def _record(self, judgement: Judgement, duration_s: float | None) -> None:
        self.user_properties += [
            ("outcome", judgement.outcome),
            ("headline", judgement.headline),
            ("verdicts", " ".join(f"{verdict.guarantee}={verdict.outcome}" for verdict in judgement.verdicts)),
            ("run_dir", str(self.run_dir)),
        ]
        if judgement.doubt:
            self.user_properties.append(("doubt", judgement.doubt))
        if duration_s is not None:
            self.user_properties.append(("duration_s", round(duration_s, 3)))

    def runtest(self) -> None:
        if self.unavailable:
            pytest.fail(f"{self.unavailable} (a failure because of --require-gpus)", pytrace=False)
        assert self.judgement is not None  # else set-up did not return
        has_failed = self.judgement.outcome != "passed"
        page = self.write_page() if has_failed or self.config.getoption("chaos_report") else None
        if has_failed:
            from harness.report.terminal import judgement_text

            shown_dir = as_typed(self.run_dir, self.config)
            text = judgement_text(self.judgement, shown_dir, title=self.title, replay=self.replay(), page=page)
            pytest.fail(text, pytrace=False)

    def write_page(self) -> Path | None:
        """Write the run's page; returns its path as the user would type it, or None if there is none."""
        from harness.report.page import write_run_report

        try:
            return as_typed(write_run_report(self.run_dir), self.config)
        except HarnessError as error:  # a full disk takes the page, not the test's result
            self.add_report_section("call", "chaos", f"no page of this run: {error}")
            return None

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, None, f"{self.path.stem} [{self.name}]"


class ScenarioItem(RunItem):
    """One scenario on one device, which is also the item's name."""

    def __init__(self, *, scenario: Scenario, device: Device, **kwargs: Any) -> None:
        super().__init__(name=device, **kwargs)
        self.scenario = scenario
        self.title = scenario.title
        self.device = device
        self.user_properties.append(("device", device))
        if device == "gpu":
            self.add_marker("gpu")

    def produce(self) -> tuple[Judgement, Path, float | None]:
        from harness.plan import make_plan

        option = self.config.getoption
        launcher, seed, disarm = option("launcher"), option("chaos_seed"), option("disarm")
        self.plan = make_plan(self.scenario, device=self.device, launcher=launcher, seed=seed, disarm=disarm)
        self.user_properties += [("seed", self.plan.seed), ("launcher", self.plan.launcher)]
        result = runs_of(self.config).run(self.plan)
        return result.judgement, result.run_dir, result.duration_s

    def may_skip(self) -> bool:
        return not (self.device == "gpu" and self.config.getoption("require_gpus"))

    def replay(self) -> str:
        from harness.report.replay import replay_command

        return replay_command(self.plan, as_typed(self.path, self.config))


class StoredRunItem(RunItem):
    """A run of earlier, judged again from its files (``--recheck``)."""

    def produce(self) -> tuple[Judgement, Path, float | None]:
        from harness.run import recheck

        return recheck(self.path.parent), self.path.parent, None

    def write_page(self) -> Path | None:
        return None  # stored runs are read, and left as they are

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, None, f"{self.path.parent.name} [{self.name}]"
