"""What is said of a hang, from planted records and stacks: who waits for whom, and where; who left no evidence."""

from __future__ import annotations

import pytest

from harness._tests.histories import Story, run
from harness.checks.hang import hang_of
from harness.checks.stacks import standing
from harness.evidence import Asked
from harness.history import SIGTERM_HEADER, History

SCRIPT = "/home/someone/train.py"
HARNESS = "/opt/harness/rank/main.py"
C10D = "/venv/lib/site-packages/torch/distributed/distributed_c10d.py"


def stack(*frames: tuple[str, int, str], thread: str = "Thread 0x1", is_main: bool = True) -> str:
    """As faulthandler writes one, the innermost frame first."""
    around = [(SCRIPT, 90, "<module>"), ("<frozen runpy>", 88, "_run_code"), (HARNESS, 150, "_run_script")]
    lines = [f'  File "{file}", line {line} in {name}' for file, line, name in (*frames, *(around if is_main else ()))]
    return "\n".join([f"{thread} (most recent call first):", *lines, ""])


LOOPS = stack((SCRIPT, 33, "spin"), (SCRIPT, 60, "train"))
REDUCES = stack((C10D, 3245, "all_reduce"), (SCRIPT, 61, "train"))
READER = stack(("/usr/lib/python3/threading.py", 5, "wait"), is_main=False)


def told(story: Story, stacks: dict[int, str] | None = None, states: dict[int, str] | None = None) -> History:
    story.stacks |= {(rank, 0): text for rank, text in (stacks or {}).items()}
    story.asked = [Asked(rank=r, restart=0, pid=story.pid(r), state=state) for r, state in (states or {}).items()]
    return story.history(timed_out=True)


def waiting(*ranks: int, of: int) -> Story:
    """These have sent the gradients of update 4; the others came to the end of update 3."""
    story = run(ranks=of, script=SCRIPT).start().updates(1, 3)
    for rank in ranks:
        story.begin(rank, 4)
    return story


STACKS: dict[str, tuple[str, str | None]] = {
    "the script's own frame is all": (LOOPS, "train.py:33 in spin"),
    "torch was called": (
        REDUCES,
        "train.py:61 in train, which called torch/distributed/distributed_c10d.py:3245 in all_reduce",
    ),
    "the main thread is not the first": (f"{READER}\n{LOOPS}", "train.py:33 in spin"),
    "it was asked while another thread ran": (f"{LOOPS}\n{READER}", "train.py:33 in spin"),
    "the last of two dumps counts": (f"{REDUCES}\n{LOOPS}", "train.py:33 in spin"),
    "it was ended by the launcher": (f"{SIGTERM_HEADER}\n{LOOPS}", "train.py:33 in spin"),
    "a line that is not known": (LOOPS.replace("line 33", "line ???"), "train.py:??? in spin"),
    "no frame at all": ("Thread 0x1 (most recent call first):\n  <no Python frame>\n", None),
    "something else": ("what a script may write\n", None),
}


@pytest.mark.parametrize(("text", "said"), STACKS.values(), ids=STACKS)
def test_where_a_process_stood(text: str, said: str | None) -> None:
    found = standing(told(waiting(0, of=2), {1: text}), 1, 0)
    assert (None if found is None else str(found)) == said


@pytest.mark.parametrize("odd", [0, 1, 3])
def test_the_rank_that_the_others_wait_for_is_named_and_comes_first(odd: int) -> None:
    story = waiting(*(rank for rank in range(4) if rank != odd), of=4)
    found = hang_of(told(story, {r: LOOPS if r == odd else REDUCES for r in range(4)}, {odd: "running"}), 0)
    assert found.rank == odd
    mine, others = found.lines.items()
    assert mine[0] == f"rank {odd}"
    assert mine[1].endswith("stood at train.py:33 in spin; its process was busy")
    assert others[1].startswith(
        f"waited for rank {odd} in all_reduce SUM of 500 float32 at train.py:61, step 4, backward"
    )
    assert str(found).endswith(f"behind: rank {odd}; rank {odd}: stood at train.py:33 in spin; its process was busy")


def test_three_that_work_while_one_waits_are_those_to_look_at() -> None:
    found = hang_of(told(waiting(0, of=4), {0: REDUCES, **dict.fromkeys((1, 2, 3), LOOPS)}), 0)
    assert found.rank is None
    assert "stood at train.py:33 in spin" in found.lines["ranks 1, 2, 3"]


def test_of_three_that_wait_elsewhere_and_one_the_one_is_odd() -> None:
    found = hang_of(told(waiting(2, of=4), dict.fromkeys(range(4), REDUCES)), 0)
    assert found.rank == 2


def test_who_waits_in_another_group_is_not_the_one_that_holds_up_all() -> None:
    """Rank 1 is late for the gradients, for it waits for rank 2 in a group of the two."""
    story = waiting(0, 3, of=4)
    for rank in (1, 2):
        story.collective(rank, group="pair", op="barrier", numel=0)
    story.collective(1, group="pair", numel=3)
    found = hang_of(told(story), 0)
    assert found.rank == 2
    assert found.lines["rank 1"].startswith("waited for rank 2 in all_reduce SUM of 3 float32")


EVIDENCE: dict[str, tuple[str | None, str | None, str]] = {
    "it was not there to be asked": (None, None, "no evidence: no stacks"),
    "it was asked and did not answer": (None, "disk-sleep", "it wrote none; its process was in state disk-sleep"),
    "it was stopped, and continued to answer": (LOOPS, "stopped", "in spin; its process was stopped (SIGSTOP)"),
    "it slept": (LOOPS, "sleeping", "stood at train.py:33 in spin"),
}


@pytest.mark.parametrize(("text", "state", "said"), EVIDENCE.values(), ids=EVIDENCE)
def test_what_is_said_of_the_evidence(text: str | None, state: str | None, said: str) -> None:
    stacks, states = {} if text is None else {1: text}, {} if state is None else {1: state}
    assert hang_of(told(waiting(0, of=2), stacks, states), 0).lines["rank 1"].endswith(said)


def test_a_rank_without_any_record_is_said_to_have_none() -> None:
    story = waiting(0, 1, of=3)
    story.events = [event for event in story.events if event["rank"] != 2]
    found = hang_of(told(story), 0)
    assert (found.rank, found.lines["rank 2"]) == (2, "left no record; no evidence: no stacks")


def test_of_many_places_the_first_are_shown_and_the_rest_counted() -> None:
    stacks = {rank: LOOPS.replace("33", str(100 + rank)) for rank in range(20)}
    found = hang_of(told(run(ranks=20, script=SCRIPT).start().updates(1, 3), stacks), 0)
    assert len(found.lines) == 9
    assert found.lines["others"].startswith("12 more")
