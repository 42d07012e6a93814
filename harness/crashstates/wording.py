"""What was found, in words for a person and as data for a machine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from harness.crashstates import findings, verdict
from harness.crashstates.examine import Examination, Finding
from harness.crashstates.operation import CHANGES_DATA, CHANGES_ENTRIES, Kind, Operation
from harness.crashstates.shrink import Loss, lost_operations
from harness.crashstates.sites import short
from harness.crashstates.sweep_wording import sweep_json, sweep_lines
from harness.crashstates.verdict import SAFE

MOST_SHOWN = 8
MODELS_IN_WORDS = {
    "kill": "the processes are killed",
    "ext4-ordered": "power is lost, on ext4 as usually mounted",
    "posix-min": "power is lost, and only what POSIX promises holds",
    "alice": "power is lost, and renames may be done by half",
}


def report(found: Examination) -> str:
    """Some lines: the outcome first, then each way to fail with what is missing, then what was looked at."""
    return "\n".join(_lines(found))


def _lines(found: Examination) -> Iterator[str]:
    is_bounded = any(not share.is_exhaustive for share in found.shares)
    yield f"{found.file}: {found.outcome}{', as far as was tried' if is_bounded and found.outcome == 'valid' else ''}"
    for problem in found.problems:
        yield f"  cannot be judged: {problem}"
    for name, words in found.calibration:
        yield f"  {name}: {words}"
    for finding in found.findings[:MOST_SHOWN]:
        yield ""
        yield from (f"  {line}" for line in finding_lines(finding))
    if (hidden := len(found.findings) - MOST_SHOWN) > 0:
        yield f"\n  and {hidden} more; --json has them all"
    if found.static:
        yield f"\n  orders that are wrong by themselves{', though no state fails' if found.outcome == 'valid' else ''}:"
        for static in found.static:
            yield f"    {static.rule}: {static.words}{_at(static.operations[0])}"
    if found.shares:
        yield ""
        yield from (f"  {line}" for line in _coverage(found))
    if found.sweeps:
        yield ""
        yield from (f"  {line}" for sweep in found.sweeps for line in sweep_lines(sweep))


def finding_lines(finding: Finding) -> Iterator[str]:
    """One way to fail: what happens, what was lost and before what it must be durable, and the missing call.

    Of a safe state: what happens and what was lost.
    """
    yield f"{finding.verdict} ({finding.num_states} states): {verdict.MEANING[finding.verdict]}"
    yield f"  when {MODELS_IN_WORDS[finding.model]}; the reader {finding.reason.splitlines()[0]}"
    for loss in finding.losses:
        first = lost_operations(loss)[0]
        yield f"  lost: {operation(first)}: {loss.fate.word}"
    if finding.verdict in SAFE:
        yield f"  after {operation(finding.last)}"
    elif finding.losses:
        yield f"  kept: {operation(finding.last)}"
        yield f"  missing: {missing_call(finding.losses[0], finding.last)}"
    else:
        yield f"  after {operation(finding.last)}"
        if finding.next is not None:
            yield f"  before {operation(finding.next)}"
        when = "from there on" if finding.next is None else "between these two"
        yield (
            f"  missing: a whole save for load to take after a crash {when}: the name or marker that load looks for "
            "comes after all data, and what acknowledges the save or deletes an older one comes after that"
        )


def missing_call(loss: Loss, last: Operation) -> str:
    """What would have made the lost thing durable in time, or would have made its loss harmless."""
    op = lost_operations(loss)[0]
    before = "save returns" if last.kind is Kind.ACK else f"{last.call} of {_target(last)}{_at(last)}"
    if op is last and op.kind is Kind.RENAME:
        return f"another name (a link) of {op.path} that stays until the rename is durable"
    if op.kind in CHANGES_ENTRIES:
        path = _target(op)
        directory = path.rpartition("/")[0] or "the checkpoint directory"
        return f"fsync of the directory that holds {path} ({directory}), before {before}"
    before_it = loss.unit.fates[0].file
    is_part_of_it = last.kind in CHANGES_DATA and last.object == op.object
    if is_part_of_it or (before_it is not None and before_it[1].data):
        return f"write to another name that load does not take, fsync it, and only then rename it to {op.path}"
    return f"fsync of {op.path}, after its last write and before {before}"


def operation(op: Operation) -> str:
    """Such as ``operation 12, rename step-2.tmp -> step-2 (saver.py:14)``."""
    what = {
        Kind.BEGIN: f"the save of step {op.step} begins",
        Kind.ACK: f"the save of step {op.step} is acknowledged",
        Kind.RENAME: f"{op.call} {op.path} -> {op.to_name}",
        Kind.WRITE: f"{op.call} {len(op.data)} bytes at {op.offset} of {op.path}",
        Kind.TRUNCATE: f"{op.call} {op.path} to {op.size_bytes} bytes",
        Kind.SYNC_ALL: op.call,
    }.get(op.kind, f"{op.call} {op.path}")
    return f"operation {op.index}, {what}{_at(op)}"


def _target(op: Operation) -> str:
    if op.kind is Kind.RENAME:
        parent = op.path.rpartition("/")[0]
        return f"{parent}/{op.to_name}" if parent and op.directory == op.to_directory else op.to_name
    return op.path


def _at(op: Operation) -> str:
    where = [short(op.site)] if op.site else []
    where += [f"rank {op.rank}"] if op.rank else []
    return f" ({', '.join(where)})" if where else ""


def _coverage(found: Examination) -> Iterator[str]:
    recording = found.recording
    assert recording is not None, "states come from a recording"
    total = sum(found.verdicts.values())
    counts = ", ".join(f"{n} {name}" for name, n in sorted(found.verdicts.items(), key=lambda item: -item[1]))
    yield (
        f"{len(recording.operations)} operations on {recording.ranks} rank{'s'[: recording.ranks > 1]}; "
        f"{total} states: {counts}"
    )
    more = ""
    for share in found.shares:
        how = (
            "all of them" if share.is_exhaustive else "a bounded choice: each single loss, then pairs, then drawn ones"
        )
        # A crash is where it comes and what it loses there; many leave the same.
        crashes = f"{share.tried} of {share.possible} possible crashes, {how}"
        yield f"  {share.model}: {share.states} {more}states from {crashes}"
        more = "more "
    took_s = found.seconds.get("judge", 0.0)
    yield (
        f"the reader ran {found.reads} times; the other states differ only where it does not look"
        f" ({total / took_s if took_s else 0:,.0f} states a second)"
    )


def to_json(found: Examination) -> dict[str, Any]:
    """The same for machines."""
    return {
        "file": str(found.file),
        "outcome": found.outcome,
        "problems": found.problems,
        "calibration": [{"verdict": name, "words": words} for name, words in found.calibration],
        "verdicts": dict(found.verdicts),
        "findings": [finding_json(finding) for finding in found.findings],
        "static": [
            {"rule": s.rule, "meaning": findings.MEANING[s.rule], "words": s.words, "site": s.operations[0].site}
            for s in found.static
        ],
        "models": [
            {
                "model": share.model,
                "states": share.states,
                "crashes_tried": share.tried,
                "crashes_possible": share.possible,
                "exhaustive": share.is_exhaustive,
            }
            for share in found.shares
        ],
        "troubles": [sweep_json(sweep) for sweep in found.sweeps],
        "reads": found.reads,
        "seconds": found.seconds,
    }


def finding_json(finding: Finding) -> dict[str, Any]:
    is_safe = finding.verdict in SAFE
    return {
        "verdict": finding.verdict,
        "is_safe": is_safe,
        "model": finding.model,
        "reason": finding.reason,
        "states": finding.num_states,
        "lost": [
            {"fate": loss.fate.word, "operations": [_operation_json(op) for op in lost_operations(loss)]}
            for loss in finding.losses
        ],
        "last": _operation_json(finding.last),
        "next": None if finding.next is None else _operation_json(finding.next),
        "missing": missing_call(finding.losses[0], finding.last) if finding.losses and not is_safe else None,
    }


def _operation_json(op: Operation) -> dict[str, Any]:
    return {"index": op.index, "rank": op.rank, "call": op.call, "path": op.path, "site": op.site, "step": op.step}
