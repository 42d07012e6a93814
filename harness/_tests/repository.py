"""A user's repository for the plugin's tests: scenarios are written into it and pytest is run there.

What is run is a small session of our own, given through the hook ``pytest_chaos_make_session``.
"""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

CONFTEST = '''
    import os
    import signal
    from contextlib import contextmanager, suppress

    from harness.checks.base import Verdict
    from harness.errors import LaunchError, UnavailableError
    from harness.expect import Judgement
    from harness.plan import write_plan
    from harness.report.stored import write_verdicts
    from harness.run import Result

    PROMISE = "after each update, parameters and optimizer state are byte-equal on all ranks"

    class ByTitle:
        """Judges a plan by a word in its title, without running anything."""

        def __init__(self, runs_dir):
            self.runs_dir = runs_dir

        def run(self, plan):
            if plan.device == "gpu":
                raise UnavailableError("2 GPUs needed, 0 visible: 2 missing; use another machine")
            if "trouble" in plan.title:
                raise LaunchError("the warm parent did not answer within 10 s")
            if "hang" in plan.title:
                signal.pause()
            while "deaf" in plan.title:  # to Ctrl-C, as what waits in C code is
                with suppress(KeyboardInterrupt):
                    signal.pause()
            outcome, found = "passed", "valid"
            if "broken" in plan.title:
                outcome, found = "failed", "invalid"
            elif "unknown" in plan.title or plan.disarmed:
                outcome = found = "unknown"
            verdict = Verdict(
                guarantee="ReplicasAgree", outcome=found, promise=PROMISE, rank=1, step=12,
                reason="after update 12 the parameters of rank 1 differ from those of rank 0",
                seen={"rank 0": "9f3c", "rank 1": "77aa"}, file="rank-1/events-0.jsonl:42",
            )
            blamed = () if found == "valid" else (verdict,)
            judgement = Judgement(
                outcome=outcome, headline=f"ReplicasAgree is {found}: {verdict.reason}",
                verdicts=(verdict,), blamed=blamed, problems=(), diagnosis=(),
                doubt="two runs without faults differ" if "compared with nothing" in plan.title else "",
            )
            run_dir = self.runs_dir / plan.name
            run_dir.mkdir()
            write_plan(plan, run_dir)
            write_verdicts(judgement, run_dir)
            return Result(judgement=judgement, run_dir=run_dir, duration_s=0.62)

    @contextmanager
    def opened(runs_dir):
        (runs_dir / f"opened-{os.getpid()}").touch(exist_ok=False)
        yield ByTitle(runs_dir)
        (runs_dir / f"closed-{os.getpid()}").touch(exist_ok=False)

    def pytest_chaos_make_session(config, runs_dir):
        return opened(runs_dir)
'''


class Repository:
    """A user's repository in which scenarios are written and pytest is run."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self.pytester = pytester
        self.path = pytester.path
        self.ini()

    def ini(self, more: str = "") -> None:
        # Hypothesis imports itself into every session that it is installed for, which takes a second.
        # Ignored: a test that ran before in this process may have imported the package that ships the plugin.
        filters = "error\n    ignore:Module already imported so cannot be rewritten:pytest.PytestAssertRewriteWarning"
        self.pytester.makeini(f"[pytest]\nfilterwarnings = {filters}\naddopts = -p no:hypothesispytest\n{more}")

    def scenario(self, name: str, title: str = "", devices: str = '"cpu"', more: str = "") -> None:
        text = f"""
            title = "{title}"
            workload = "ddp_mlp"
            devices = [{devices}]
            {more}
            [expect]
            outcome = "clean"
        """
        self.write(f"scenarios/{name}.toml", textwrap.dedent(text).lstrip())

    def write(self, name: str, text: str) -> Path:
        path = self.path / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(text)
        return path

    def run(self, *arguments: str) -> pytest.RunResult:
        return self.pytester.runpytest_inprocess(*arguments)

    def run_alone(self, *arguments: str) -> pytest.RunResult:
        """In a process of its own: slower by a second, for what the process itself is asked."""
        return self.pytester.runpytest_subprocess(*arguments, timeout=60)

    @property
    def runs(self) -> list[Path]:
        return sorted(path.parent for path in self.path.glob(".chaos/runs/*/*/plan.json"))
