"""What the crash states of a save foretell comes true: one of each verdict, in a whole job that begins with it.

Each job of workloads/planted/jobs is examined as a saver; a kept state of each verdict is then what the same file, as a
torchrun script, begins with. The job is compared with the same job from nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from harness.crashstates.archive import Archive, read_archive, write_archives
from harness.crashstates.command import work_directory
from harness.crashstates.examine import examine
from harness.crashstates.models import ModelName
from harness.crashstates.ranks.session import Host
from harness.crashstates.record.tracing import why_unavailable
from harness.crashstates.verdict import VERDICTS, Verdict
from harness.expect import Judgement
from harness.plan import make_plan
from harness.run import Session
from harness.scenario import load_scenario

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(why_unavailable() is not None, reason=f"strace: {why_unavailable()}"),
]

JOBS = Path(__file__).parents[2] / "workloads" / "planted" / "jobs"
POWER_LOSS: tuple[ModelName, ...] = ("ext4-ordered",)  # only this harms it, all others fail when they are killed
MOST = 300
LOAD_S = 1.5
HANG_S = 6.0

Kept = Callable[[str, Verdict], Path]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    """A function from a job and a verdict to the archive of a state of it; fails if it has none."""
    place = tmp_path_factory.mktemp("states")
    with Host(preload=("torch", "torch.distributed.nn", "torch._dynamo")) as host:

        @cache
        def archives(job: str) -> dict[Verdict, Path]:
            models: tuple[ModelName, ...] = POWER_LOSS if job == "renamed_without_sync" else ("kill",)
            with work_directory() as root:
                found = examine(JOBS / f"{job}.py", root, models=models, most=MOST, host=host, load_deadline_s=LOAD_S)
            assert found.problems == []
            paths = write_archives(found, place / job, with_safe=True)
            return {read_archive(path).verdict: path for path in reversed(paths)}

        yield lambda job, verdict: archives(job)[verdict]


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    place = tmp_path_factory.mktemp("chaos")
    with Session(place / "store", place / "runs") as session:
        yield session


def judged(session: Session, job: str, start: Path, expect: str, more: str = "", launcher: str = "warm") -> Judgement:
    """The judgement of the job that begins with ``start``."""
    file = start.with_suffix(".toml")
    file.write_text(
        f'workload = "{JOBS / job}.py"\nargs = ["{{checkpoints}}"]\nstart_from = "{start.name}"\n'
        f"{more}\n[expect]\n{expect}\n"
    )
    return session.run(make_plan(load_scenario(file), device="cpu", launcher=launcher)).judgement


@dataclass(frozen=True, kw_only=True)
class Foretold:
    """What must come of a job that begins with such a state; ``{acked}`` and ``{begun}`` are those of the state."""

    job: str
    verdict: Verdict
    expect: str
    says: str
    more: str = ""


CASES = {
    "the save that was going on: the job goes on from it": Foretold(
        job="store",
        verdict="safe-new",
        expect='outcome = "recovers"\nresume_step = {begun}',
        says="resumed from step {begun}",
    ),
    "the save before it: the job goes on from that, over what is left of the other": Foretold(
        job="store",
        verdict="safe-old",
        expect='outcome = "recovers"\nresume_step = {acked}',
        says="resumed from step {acked}",
    ),
    "a script that tells nothing: its state tells where it goes on": Foretold(
        job="renamed_without_sync",
        verdict="safe-new",
        expect='outcome = "recovers"\nresume_step = {begun}',
        says="resumed from step {begun}",
    ),
    "an acknowledged save is gone: the promise is named": Foretold(
        job="renamed_without_sync",
        verdict="lost-ack",
        expect='outcome = "detected"\nbroken = [{{ guarantee = "AcknowledgedSurvives", step = {acked} }}]',
        says="the save of step {acked} had been reported done before the crash, but rank 0 went on from step 2",
    ),
    "all saves are gone: the promise is named": Foretold(
        job="renamed_without_sync",
        verdict="lost-work",
        expect='outcome = "detected"\nbroken = [{{ guarantee = "AcknowledgedSurvives", step = {acked} }}]',
        says="the save of step {acked} had been reported done before the crash, but rank 0 went on from nothing",
    ),
    "the model of one step and the optimizer of another: the step is named": Foretold(
        job="stale_optimizer",
        verdict="wrong-state",
        expect='outcome = "detected"\nbroken = [{{ guarantee = "RollbackExact", step = {begun} }}]',
        says="from step {begun}, but its optimizer state is not that step's",
    ),
    "a model that no update ever made: it is of no step": Foretold(
        job="mixes_layers",
        verdict="wrong-state",
        expect='outcome = "detected"\n'
        'broken = [{{ guarantee = "RollbackExact" }}, {{ guarantee = "EndsLikeBaseline" }}]',
        says="the state that rank 0 began with is that of no step of the fault-free run",
    ),
    "half a file: the job refuses": Foretold(
        job="in_place", verdict="refused", expect='outcome = "refuses"\nmessage = "EOFError"', says="refuses"
    ),
    "a load that waits for ever: the bound is named": Foretold(
        job="waits_for_the_marker",
        verdict="hang",
        expect='outcome = "detected"\nbroken = [{{ guarantee = "EndsInTime" }}]',
        says=f"still running after {HANG_S:g} s",
        more=f"deadline_s = {HANG_S}",
    ),
    "ranks that go on from different saves: ranks and steps are named": Foretold(
        job="ranks_choose_alone",
        verdict="ranks-disagree",
        expect='outcome = "detected"\nbroken = [{{ guarantee = "RollbackExact" }}, {{ guarantee = "ReplicasAgree" }}]',
        says="the ranks go on with different updates: ",
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_job_does_what_its_crash_state_foretells(kept: Kept, session: Session, case: Foretold) -> None:
    start = kept(case.job, case.verdict)
    state = read_archive(start)
    judgement = judged(session, case.job, start, filled(case.expect, state), case.more)
    assert judgement.outcome == "passed", (judgement.headline, judgement.problems)
    said = [judgement.headline, *(v.reason for v in judgement.verdicts if v.outcome == "invalid")]
    assert any(filled(case.says, state) in text for text in said), said


def filled(text: str, state: Archive) -> str:
    return text.format(acked=state.acked, begun=state.begun)


def test_the_real_torchrun_command_comes_to_the_same(kept: Kept, session: Session) -> None:
    start = kept("renamed_without_sync", "lost-ack")
    expect = filled(CASES["an acknowledged save is gone: the promise is named"].expect, read_archive(start))
    warm = judged(session, "renamed_without_sync", start, expect)
    cold = judged(session, "renamed_without_sync", start, expect, launcher="torchrun")
    assert (cold.outcome, cold.headline) == (warm.outcome, warm.headline)
    assert [(v.guarantee, v.outcome) for v in cold.verdicts] == [(v.guarantee, v.outcome) for v in warm.verdicts]


def test_every_verdict_is_seen_in_a_job() -> None:
    assert {case.verdict for case in CASES.values()} == {*VERDICTS} - {"not-triggered"}


def test_a_job_that_ends_like_the_undisturbed_one_is_byte_equal_and_says_which_updates_it_did_not_make(
    kept: Kept, session: Session
) -> None:
    start = kept("store", "safe-old")
    acked = read_archive(start).acked
    assert acked > 0
    judgement = judged(session, "store", start, f'outcome = "recovers"\nresume_step = {acked}')
    verdicts = {verdict.guarantee: verdict for verdict in judgement.verdicts}
    for name in ("RollbackExact", "EndsLikeBaseline", "SamplesOnce", "AcknowledgedSurvives", "NewestCompleteLoads"):
        assert verdicts[name].outcome == "valid", verdicts[name]
    assert f"the {acked} before them are of an earlier run" in verdicts["SamplesOnce"].reason


@pytest.mark.parametrize(
    ("job", "verdict", "resume_step"),
    [("renamed_without_sync", "lost-ack", "2"), ("stale_optimizer", "wrong-state", "{begun}")],
)
def test_a_scenario_that_expects_recovery_fails_on_a_state_that_foretells_none(
    kept: Kept, session: Session, job: str, verdict: Verdict, resume_step: str
) -> None:
    start = kept(job, verdict)
    expect = filled(f'outcome = "recovers"\nresume_step = {resume_step}', read_archive(start))
    assert judged(session, job, start, expect).outcome == "failed"


def test_trouble_that_is_not_triggered_proves_nothing(kept: Kept, session: Session) -> None:
    """The update of the fault was made before the crash: it never comes in this run."""
    never = '[[fault]]\nkind = "kill"\nrank = 0\nat = { step = 1 }'
    judgement = judged(session, "store", kept("store", "safe-new"), 'outcome = "stops"', never)
    assert judgement.outcome == "unknown"
    assert "it did not fire" in judgement.headline
