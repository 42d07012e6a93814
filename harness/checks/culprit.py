"""Is the first cause named, and not a victim?"""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator

from harness.checks.base import Verdict, guarantee, invalid, not_applicable, unknown, valid
from harness.checks.cause import Cause
from harness.checks.diagnosis import diagnose
from harness.checks.records import listed
from harness.faults import Fault
from harness.faults.base import CollectiveFault, LoaderFault
from harness.faults.batch import BatchFault
from harness.faults.files import FilesFault
from harness.faults.work import WorkFault
from harness.history import Baseline, History
from harness.wire import Event, Kind


@guarantee(
    "CulpritNamed", "of each failed launch the first cause, not a victim, is named: rank, step, and how it ended"
)
def culprit_named(history: History, baseline: Baseline | None) -> Verdict:
    """The diagnosis never sees the faults; only here is it compared with them."""
    causes = diagnose(history, baseline)
    if not causes:
        return not_applicable("no launch failed")
    undecided = None
    for cause in causes:
        faults = history.plan.faults
        fired = [
            e
            for e in history.of(Kind.FAULT)
            if e.restart == cause.restart and not isinstance(faults[e.data["index"]], FilesFault)  # it ends no launch
        ]
        if fired:
            if problem := _mistaken(history, cause, fired):
                return invalid(
                    f"restart {cause.restart}: {problem}",
                    fired[0],
                    operation=cause.operation,
                    seen={"named": cause.detail, "rank named": cause.rank, "step named": cause.step},
                )
        elif not cause.named and cause.how != "stopped" and undecided is None:
            undecided = cause
    if undecided is not None:
        return unknown(f"restart {undecided.restart}: no rank can be named: {undecided.detail}", undecided.event)
    return valid("; ".join(f"restart {c.restart}: {_who(c)}, step {c.step}: {c.detail}" for c in causes))


def _who(cause: Cause) -> str:
    return listed(cause.named) if cause.named else "no rank"


def _mistaken(history: History, cause: Cause, fired: list[Event]) -> str | None:
    """What the diagnosis got wrong; None if it is right of one of the faults that may have ended the launch."""
    mistakes = [(fault, _mistaken_of(history, cause, fired, first)) for fault, first in _suspects(history, fired)]
    if any(problem is None for _, problem in mistakes):
        return None
    if cause.how != "hang" and all(_only_slows(fault) for fault, _ in mistakes):
        return None  # they show as a hang or not at all: what is named ended by itself
    return next((problem for fault, problem in mistakes if fault.ends_launch != "never"), mistakes[0][1])


def _suspects(history: History, fired: list[Event]) -> Iterator[tuple[Fault, Event]]:
    """Each fault and its first firing, up to the first that is sure to end a launch: no later one is to blame."""
    seen = set()
    for event in fired:
        fault = history.plan.faults[event.data["index"]]
        if event.data["index"] not in seen:
            yield fault, event
        seen.add(event.data["index"])
        if fault.ends_launch == "always":
            return


def _mistaken_of(history: History, cause: Cause, fired: list[Event], first: Event) -> str | None:
    """What it got wrong if this fault was the cause."""
    fault = history.plan.faults[first.data["index"]]
    alike = {e.rank: e for e in fired if e.data["index"] == first.data["index"]}
    done = f"{fault.kind} fired on {listed(alike)} in step {first.step}"
    if _spoils_values(fault) and cause.how == "exception" and (cause.step or 0) >= first.step:
        return None  # they spread with the next reduction: whose script says so first is chance
    if cause.how in (shows := _shows_as(fault)) and "disconnected" in shows and (cause.step or 0) >= first.step:
        return None  # all ranks fail of it: whose script says so first, and how, is chance
    if not cause.named or not alike.keys() >= {*cause.named}:
        return f"{done}, but {_who(cause)} is named: {cause.detail}"
    if cause.how not in (expected := _shows_as(fault)):
        return f"{done}, which shows as {' or '.join(expected)}, but what is named is {cause.how}: {cause.detail}"
    if cause.how != "loader" and not _is_there(fault, cause.step, alike[cause.named[0]]):
        # Where unequal loaders part is not where the loader was made shorter.
        return f"{done}, but step {cause.step} is named: {cause.detail}"
    code = _exit_code(fault)
    if code is not None and cause.how in ("signal", "exit") and cause.exit_code not in (None, code):
        return f"{done} with exit code {code}, but {cause.exit_code} is named: {cause.detail}"
    return None


def _only_slows(fault: Fault) -> bool:
    return fault.ends_launch == "never" and not fault.findings


def _is_there(fault: Fault, named: int | None, fired: Event) -> bool:
    """Whether the step that is named is the fault's: of a rank that may go on for a while, that one or a later one; in
    the teardown also the one that was begun when the data came to its end.
    """
    if _grace_s(fault) is not None:
        return (named or 0) >= fired.step
    return named == fired.step or (fired.phase == "teardown" and named == fired.step + 1)


def _grace_s(fault: Fault) -> float | None:
    return getattr(fault, "grace_s", None)


def _spoils_values(fault: Fault) -> bool:
    if isinstance(fault, BatchFault) or fault.kind == "corrupt_collective":
        return True
    return isinstance(fault, WorkFault) and fault.acts_in not in ("save", "load")


def _shows_as(fault: Fault) -> Iterable[str]:
    if isinstance(fault, LoaderFault):
        return ("loader",)
    if isinstance(fault, CollectiveFault):
        return _of_collective(fault)
    if isinstance(fault, BatchFault):
        return ("hang", "loader", "exception")  # it waits too long, ends too soon, or the script looks at its values
    if isinstance(fault, WorkFault):
        return ("skipped", "extra", "mismatch", "swapped", "exception", "exit")  # exit: it was done, the others waited
    match fault.kind:
        case "raise" | "out_of_memory":
            return ("exception",)
        case "hang" | "straggle":
            return ("hang",)
        case "exit":
            return ("exit", "signal")  # os._exit may leave no last word
        case "kill" if _grace_s(fault) is not None:
            return ("exit", "exception", "signal")  # as the script answers it, and else by the signal or SIGKILL
        case "kill" if getattr(fault, "signal", None) == "SIGINT":
            return ("exception",)  # Python makes it a KeyboardInterrupt
        case _:
            return ("signal",)


def _of_collective(fault: CollectiveFault) -> Iterable[str]:
    match fault.kind:
        case "delay_collective":
            return ("hang",)
        case "abort_group":
            return ("disconnected", "exception", "exit")
        case "corrupt_collective":
            return ("exception",)  # the script looks at its values
        case _:
            return ("skipped", "extra", "swapped", "mismatch")


def _exit_code(fault: Fault) -> int | None:
    """What the process leaves with, if the fault says so."""
    if isinstance(name := getattr(fault, "signal", None), str) and _grace_s(fault) is None:
        return -signal.Signals[name]
    code = getattr(fault, "code", None)
    return code if isinstance(code, int) else None
