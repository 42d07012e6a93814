"""What a state is worth: what its reader made of it against what had been saved and acknowledged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

Verdict = Literal[
    "safe-new",  # the save that was going on, or the newest one
    "safe-old",  # the one before it, which was the newest that had been acknowledged
    "lost-work",  # nothing was found, though a save had been acknowledged: a silent start from zero
    "lost-ack",  # an older one than the newest that had been acknowledged
    "wrong-state",  # something that was never saved
    "refused",  # the reader raised an error or died: nothing goes on until a person has looked
    "hang",  # the reader did not come back
    "ranks-disagree",  # the ranks loaded different ones
    "not-triggered",  # the injected trouble never came up: nothing is known
]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
SAFE: frozenset[Verdict] = frozenset({"safe-new", "safe-old"})

MEANING: dict[Verdict, str] = {
    "safe-new": "the newest save is loaded",
    "safe-old": "the save before it is loaded, and nothing newer had been acknowledged",
    "lost-work": "nothing is found, though a save had been acknowledged",
    "lost-ack": "an older save is loaded than the one that had been acknowledged",
    "wrong-state": "what is loaded was never saved",
    "refused": "the load ends with an error",
    "hang": "the load does not come back",
    "ranks-disagree": "the ranks load different saves",
    "not-triggered": "the injected trouble did not come up",
}


@dataclass(frozen=True, slots=True)
class Truth:
    """What load returns after undisturbed saves.

    Attributes:
        digests: step -> what each rank loads, as a digest; step 0: before the first save.
    """

    digests: dict[int, tuple[str, ...]]

    def steps_of(self, rank: int, digest: str) -> frozenset[int]:
        """The steps after which this rank loads this."""
        return frozenset(step for step, by_rank in self.digests.items() if by_rank[rank] == digest)


def judge(loaded: Sequence[frozenset[int]], acked: int, begun: int) -> tuple[Verdict, str]:
    """The verdict where every rank returned something, and a reason in words.

    Args:
        loaded: for each rank the steps whose state it returned; empty: of none.
        acked: the newest acknowledged step; 0: none.
        begun: the newest step whose save had begun.
    """
    common = frozenset.intersection(*loaded)
    if not common:
        if all(loaded):
            each = ", ".join(f"rank {rank}: {_steps(steps)}" for rank, steps in enumerate(loaded))
            return "ranks-disagree", f"loaded {each}"
        wrong = [rank for rank, steps in enumerate(loaded) if not steps]
        where = "" if len(loaded) == 1 else f" on rank {', '.join(map(str, wrong))}"
        return "wrong-state", f"loaded{where} what no save had put there"
    if newer := [step for step in common if acked < step <= begun]:
        return "safe-new", f"loaded step {max(newer)}"
    if acked in common:
        return ("safe-new" if acked == begun and acked else "safe-old"), f"loaded {_steps({acked})}"
    step = max(common)
    if step == 0:
        return "lost-work", f"found nothing, though step {acked} was acknowledged"
    return "lost-ack", f"loaded step {step}, though step {acked} was acknowledged"


def _steps(steps: frozenset[int] | set[int]) -> str:
    return " or ".join("nothing" if step == 0 else f"step {step}" for step in sorted(steps))
