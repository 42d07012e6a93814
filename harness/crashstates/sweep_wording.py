"""What the sweeps found, in words for a person and as data for a machine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from harness.crashstates.positions import SYNCS
from harness.crashstates.sites import short
from harness.crashstates.sweep import Failure, Sweep
from harness.crashstates.trouble.base import Attempt


def sweep_lines(sweep: Sweep) -> Iterator[str]:
    """One line, and for each way to fail: where it came, what save and load did, and what to do."""
    name = f"{sweep.trouble.name:<13}"
    if sweep.unavailable is not None:
        yield f"{name} not tried: {sweep.unavailable}"
        return
    if not sweep.num_tries:
        yield f"{name} nothing that it could befall"
        return
    counts = ", ".join(f"{n} {verdict}" for verdict, n in sweep.verdicts.most_common() if verdict != "not-triggered")
    tries = f"{sweep.num_tries} {'try' if sweep.num_tries == 1 else 'tries'}"
    tries += f"{' (the bound)' if sweep.is_cut else ''}, {sweep.num_fired} fired"
    if 0 < sweep.num_fired < sweep.num_tries:
        tries += " (nothing is known of the other places)"
    excused = f"; {', '.join(sorted(sweep.trouble.excused))} cannot be avoided" if sweep.trouble.excused else ""
    yield f"{name} {tries}: {counts}{excused} ({sweep.seconds:.1f} s)"
    for failure in sweep.failures.values():
        yield from (f"  {line}" for line in _failure_lines(failure))


def _failure_lines(failure: Failure) -> Iterator[str]:
    attempt = failure.example
    yield f"{failure.verdict} ({failure.num_attempts} of them), first with {where(attempt)}"
    yield f"  save {attempt.saved}; load: {attempt.loaded}"
    if failure.is_again and attempt.again is not None:
        yield f"  the same step saved again: {attempt.again[1]}"
    yield f"  what to do: {cure(failure)}"


def where(attempt: Attempt) -> str:
    """Such as ``EIO at fsync 2 of step-3.tmp (saver.py:14, rank 1)``."""
    position = attempt.position
    if position is None:
        return attempt.what + (f" on rank {attempt.rank}" if attempt.rank else "")
    where = [short(position.site)] if position.site else []
    where += [f"rank {position.rank}"] if position.rank else []
    path = "the checkpoint directory" if position.path == "." else position.path
    return f"{attempt.what} at {position.call} {position.k}, of {path}" + (f" ({', '.join(where)})" if where else "")


def cure(failure: Failure) -> str:
    """What would have helped."""
    if failure.is_again:
        return (
            "a failed save leaves something that is in the way of the next: use a fresh name for each try, "
            "or remove what is there first"
        )
    if failure.trouble.cure is not None:
        return failure.trouble.cure
    if failure.verdict == "hang":
        return "a rank that fails must tell the others (a vote) before they wait for it, and waits need a deadline"
    if failure.example.has_returned:
        position = failure.example.position
        if position is not None and position.call in SYNCS:
            return "save returned: let the error out; a failed fsync cannot be repeated, only all be written anew"
        return "save returned: let the error out, and take a write that was cut short for one that failed"
    return "the failed save harmed what had been acknowledged: write to another name, and replace only what is whole"


def sweep_json(sweep: Sweep) -> dict[str, Any]:
    """The same for machines."""
    return {
        "trouble": sweep.trouble.name,
        "meaning": sweep.trouble.meaning,
        "unavailable": sweep.unavailable,
        "tries": sweep.num_tries,
        "fired": sweep.num_fired,
        "cut": sweep.is_cut,
        "verdicts": dict(sweep.verdicts),
        "failures": [_failure_json(failure) for failure in sweep.failures.values()],
        "seconds": sweep.seconds,
    }


def _failure_json(failure: Failure) -> dict[str, Any]:
    attempt = failure.example
    position = attempt.position
    return {
        "verdict": failure.verdict,
        "again": failure.is_again,
        "attempts": failure.num_attempts,
        "what": attempt.what,
        "rank": attempt.rank,
        "call": None if position is None else position.call,
        "k": None if position is None else position.k,
        "path": None if position is None else position.path,
        "site": None if position is None else position.site,
        "saved": attempt.saved,
        "loaded": attempt.loaded,
        "saved_again": None if attempt.again is None else attempt.again[1],
        "cure": cure(failure),
    }
