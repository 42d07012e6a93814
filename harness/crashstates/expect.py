"""Is what was found of a save function what its scenario expects?"""

from __future__ import annotations

from typing import Literal

from harness.crashstates.examine import Examination
from harness.crashstates.models import MODEL_NAMES
from harness.scenario.saver import ExpectStates


def weigh(found: Examination, expect: ExpectStates) -> tuple[Literal["passed", "failed", "unknown"], list[str]]:
    """The outcome, and what is wrong, each a sentence; nothing if it passed."""
    if found.outcome == "unknown":
        return "unknown", found.problems or ["no crash was tried, and no trouble came up"]
    problems = []
    if found.outcome != expect.outcome:
        problems.append(f"the save is {found.outcome}, and {expect.outcome} was expected")
    elif expect.outcome == "broken":
        seen = found.failing
        problems += [f"no state is {name}, which was expected" for name in expect.verdicts if name not in seen]
        problems += [f"some states are {name}, which was not expected" for name in sorted(seen - {*expect.verdicts})]
        weakest = min((finding.model for finding in found.findings), key=MODEL_NAMES.index, default=None)
        if expect.model is not None and weakest != expect.model:
            problems.append(f"it fails under {weakest or 'no kind of crash'} at the weakest, not {expect.model}")
    return ("failed" if problems else "passed"), problems
