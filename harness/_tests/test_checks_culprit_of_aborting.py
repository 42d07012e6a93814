"""The diagnosis of processes that abort themselves as a peer is gone: who died first, whatever ended the others."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from harness._tests.histories import Story, run
from harness._tests.launched import make_run
from harness.checks import GUARANTEES
from harness.checks.diagnosis import diagnose
from harness.launch import LAUNCHERS
from harness.wire import Kind

Tell = Callable[[Story], object]


def told(*acts: Tell, ranks: int = 2) -> Story:
    story = run(ranks=ranks, expect="stops").start().updates(1, 3)
    for act in acts:
        act(story)
    return story


def sends(*ranks: int) -> Tell:
    """The gradients of step 4."""
    return lambda story: [story.begin(rank, 4) for rank in ranks]


def reads(rank: int) -> Tell:
    return lambda story: story.tell(rank, Kind.PHASE, step=4, phase="load_batch")


def raises(rank: int, phase: str = "forward") -> Tell:
    return lambda story: story.raises(rank, "ValueError", "a bug of the script's", step=4, phase=phase)


def leaves(rank: int, code: int) -> Tell:
    return lambda story: story.exits(rank, code)


def tears_down(rank: int) -> Tell:
    return lambda story: story.tell(rank, Kind.PHASE, step=4, phase="teardown")


def cleans_up_together(rank: int) -> Tell:
    return lambda story: story.collective(rank, "barrier", numel=0, dtype=None, reduce_op=None, site="train.py:99")


def aborts(rank: int) -> Tell:
    return lambda story: story.kill(rank, code=-6, fatal="Aborted")


def crashes(rank: int) -> Tell:
    return lambda story: story.kill(rank, code=-11, fatal="Segmentation fault")


def vanishes(rank: int) -> Tell:
    return lambda story: story.kill(rank)


def found_at_once(story: Story) -> None:
    """The agent finds all that are dead in one look, after the last word of each."""
    last = max(each.t_ns or 0 for each in story.agent_exits)
    story.agent_exits[:] = [replace(each, order=0, t_ns=last) for each in story.agent_exits]


def as_torchrun_tells(rank: int) -> Tell:
    """A cold agent names one rank alone, be it which it will, and says not when."""

    def tell(story: Story) -> None:
        mine = [each for each in story.agent_exits if each.local_rank == rank]
        story.agent_exits[:] = [replace(each, order=0, t_ns=None) for each in mine]

    return tell


GONE_FIRST: dict[str, tuple[Story, str]] = {
    "an exception, found dead first": (told(reads(0), raises(0), aborts(1)), "exception"),
    "an exception while the other waits, found at once": (
        told(sends(1), reads(0), raises(0), aborts(1), found_at_once), "exception"),
    "an exception while the other waits, cold, itself named": (
        told(sends(1), reads(0), raises(0), aborts(1), as_torchrun_tells(0)), "exception"),
    "an exception while the other waits, cold, the other named": (
        told(sends(1), reads(0), raises(0), aborts(1), as_torchrun_tells(1)), "exception"),
    "an exception before the other's last word": (
        told(raises(0), sends(1), aborts(1), as_torchrun_tells(1)), "exception"),
    "an exception before the last word of one that vanishes": (
        told(raises(0), sends(1), vanishes(1), as_torchrun_tells(1)), "exception"),
    "an exception that takes the group down before it is on record": (
        told(sends(1), reads(0), tears_down(0), aborts(1), raises(0, "teardown")), "exception"),
    "an exception whose clean-up meets the other's gradients": (
        told(sends(1), reads(0), cleans_up_together(0), raises(0), aborts(1), as_torchrun_tells(1)), "exception"),
    "an exception, and a crash after it": (told(sends(0, 1), raises(0), crashes(1)), "exception"),
    "exit code 0 in the middle of the job": (told(sends(1), leaves(0, 0), aborts(1)), "exit"),
    "exit code 3 before the other's last word": (
        told(leaves(0, 3), sends(1), aborts(1), as_torchrun_tells(1)), "exit"),
    "an exception, of which two fall": (
        told(sends(1, 2), reads(0), raises(0), aborts(2), aborts(1), as_torchrun_tells(2), ranks=3), "exception"),
}  # fmt: skip


@pytest.mark.parametrize("name", GONE_FIRST)
def test_a_rank_that_fails_of_itself_is_named_and_not_those_that_fall_after_it(name: str) -> None:
    story, how = GONE_FIRST[name]
    (cause,) = diagnose(story.history(exit_code=1))
    assert (cause.rank, cause.how) == (0, how), cause


DIED_FIRST: dict[str, Story] = {
    "SIGKILL": told(sends(0, 1), vanishes(1), raises(0, "backward")),
    "SIGKILL while it waits": told(sends(1), vanishes(1), raises(0)),
    "SIGKILL while it waits, cold": told(sends(1), vanishes(1), raises(0), as_torchrun_tells(0)),
    "SIGKILL, found with the other": told(sends(0, 1), vanishes(1), raises(0, "backward"), found_at_once),
    "SIGSEGV": told(sends(0, 1), crashes(1), raises(0, "backward")),
    "SIGSEGV while it waits, cold": told(sends(1), crashes(1), raises(0), as_torchrun_tells(0)),
    "SIGABRT": told(sends(0, 1), aborts(1), raises(0, "backward")),
    "SIGABRT, cold": told(sends(0, 1), aborts(1), raises(0, "backward"), as_torchrun_tells(0)),
    "SIGABRT while it waits, found before the other fails": told(sends(1), aborts(1), reads(0), raises(0)),
    "SIGKILL before the other is done": told(sends(0, 1), vanishes(1), leaves(0, 0)),
    "SIGKILL after the other is done": told(leaves(0, 0), sends(1), vanishes(1)),
}


@pytest.mark.parametrize("name", DIED_FIRST)
def test_a_rank_that_a_signal_ends_first_is_named_and_not_what_fails_after_it(name: str) -> None:
    (cause,) = diagnose(DIED_FIRST[name].history(exit_code=1))
    assert (cause.rank, cause.how) == (1, "signal"), cause


def test_of_those_that_fall_none_is_named_where_a_third_died_by_itself() -> None:
    story = told(sends(1, 2), vanishes(2), reads(0), raises(0), aborts(1), ranks=3)
    (cause,) = diagnose(story.history(exit_code=1))
    assert (cause.rank, cause.how) == (2, "signal")


FAILS_ALONE = """
from pathlib import Path

def await_other():
    record = Path(__file__).with_name("rank-1") / "events-0.jsonl"
    while b'"op":"all_reduce"' not in record.read_bytes():
        pass

dist.init_process_group("gloo")
dist.barrier()
if rank == 0:
    {fails}
try:
    dist.all_reduce(torch.ones(3))
except RuntimeError:
    os.abort()
"""
COLD = pytest.param("torchrun", marks=pytest.mark.slow)


@pytest.mark.parametrize("kind", ["warm", COLD])
@pytest.mark.parametrize(
    ("fails", "how"),
    [
        pytest.param("raise ValueError('a bug')", "exception", id="it raises"),
        pytest.param("await_other(); raise ValueError", "exception", id="the other waits"),
        pytest.param("os._exit(0)", "exit", id="it leaves"),
    ],
)
def test_real_ranks_that_abort_of_a_lost_peer_are_not_named(kind: str, fails: str, how: str, tmp_path: Path) -> None:
    with LAUNCHERS[kind]() as launcher:
        history = make_run(launcher, tmp_path)(textwrap.dedent(FAILS_ALONE).format(fails=fails))
    assert "Fatal Python error: Aborted" in history.stacks[1, 0]
    (cause,) = diagnose(history)
    assert (cause.rank, cause.how) == (0, how), cause
    found = GUARANTEES["CulpritNamed"].check(history, None)
    assert found.outcome == "valid", found
