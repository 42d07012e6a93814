"""Do the ranks read the right samples, and equally many batches?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from harness.checks.base import Verdict, guarantee, invalid, not_applicable, unknown, valid
from harness.checks.batches import first_shift, with_batches
from harness.checks.loaders import parting
from harness.checks.records import begun, ended_well, listed, surviving, unplaced, updates
from harness.checks.same_loaders import same_loaders
from harness.history import Baseline, History
from harness.wire import Event, Kind

Line = Mapping[int, Mapping[int, Event]]


@guarantee(
    "LoadersAgree",
    "in each epoch every rank's loader hands out the same number of batches, and each update ends with the batch of "
    "the same number on all ranks",
)
def loaders_agree(history: History, _: Baseline | None) -> Verdict:
    count = len(history.of(Kind.LOADER))
    if count == 0:
        return not_applicable("no data loader is on record")
    for restart in range(history.restarts + 1):
        found, shift = parting(history, restart), first_shift(history, restart)
        if shift is not None and (found is None or shift.at.t_ns < found.at.t_ns):
            return invalid(
                f"update {shift.step} ends with another batch of the epoch: {shift.words} (counted from 0)",
                shift.at,
                rank=shift.rank,
                seen={"batch": shift.numbers, "epoch": shift.at.data["epoch"]},
            )
        if found is not None:
            lengths = ", ".join(f"{rank}: {batches}" for rank, batches in found.batches.items())
            return invalid(
                f"loader {found.loader}, epoch {found.epoch}: {lengths}",
                found.at,
                rank=found.rank,
                seen={"epoch": found.epoch, "batches": found.batches},
            )
    return valid(f"{count} epochs of loaders agree")


@guarantee(
    "SamplesOnce", "of the updates that count no sample is lost and none is used twice, but for declared padding"
)
def samples_once(history: History, baseline: Baseline | None) -> Verdict:
    line = surviving(updates(history))
    events = [e for steps in line.values() for e in steps.values()]
    if not events:
        return not_applicable("no update is on record")
    unknown_ids = [e for e in events if e.data["ids"] is None]
    if len(unknown_ids) == len(events):
        return not_applicable("the sample ids are not on record: the data set is not read by integer index")
    if unknown_ids:
        return unknown(
            f"the sample ids of {len(unknown_ids)} of {len(events)} updates are not on record", unknown_ids[0]
        )
    if not any(e.data["ids"] for e in events) and history.of(Kind.BATCH):
        return unknown("batches were read, and none is known to have been used in an update", events[0])
    if (state := unplaced(history)) is not None:
        return unknown(f"nothing tells at which step rank {state.rank} began", state)
    before = begun(history)
    expected = _expected(baseline, before)
    said = f"{_total(line)}; the {before} before them are of an earlier run" if before else _total(line)
    return _unlike_baseline(history, expected, line) or _used_twice(history, line, expected) or valid(said)


def _total(line: Line) -> str:
    samples = sum(len(e.data["ids"]) for steps in line.values() for e in steps.values())
    return f"{samples} samples in {len({s for steps in line.values() for s in steps})} updates"


def _expected(baseline: Baseline | None, before: int) -> dict[int, dict[int, list[int]]] | None:
    """Step -> rank -> sample ids of the fault-free run after ``before``; None if it tells nothing."""
    if baseline is None or baseline.repeatable is False:
        return None
    by_step: dict[int, dict[int, list[int]]] = {}
    for rank, steps in baseline.sample_ids.items():
        for step, ids in steps.items():
            if ids is None:
                return None
            if step > before:
                by_step.setdefault(step, {})[rank] = list(ids)
    return by_step or None


def _unlike_baseline(history: History, expected: dict[int, dict[int, list[int]]] | None, line: Line) -> Verdict | None:
    """The first step whose samples, over all ranks, are not those of the fault-free run."""
    if expected is None:
        return None
    by_step: dict[int, dict[int, Event]] = {}
    for rank, steps in line.items():
        for step, event in steps.items():
            by_step.setdefault(step, {})[rank] = event
    wanted_steps = set(expected) if ended_well(history) else set(expected) & set(by_step)
    for step in sorted(set(by_step) | wanted_steps):
        here, wanted = by_step.get(step, {}), expected.get(step, {})
        if wanted.keys() - here.keys() and not ended_well(history):
            continue  # some ranks were stopped in this step
        used = _count(e.data["ids"] for e in here.values())
        if used != _count(wanted.values()):
            return _lost_or_twice(step, here, wanted, by_step, expected)
    return None


def _count(batches: Iterable[Iterable[int]]) -> Counter[int]:
    return Counter(sample for batch in batches for sample in batch)


def _lost_or_twice(
    step: int,
    here: Mapping[int, Event],
    wanted: Mapping[int, list[int]],
    by_step: Mapping[int, Mapping[int, Event]],
    expected: Mapping[int, Mapping[int, list[int]]],
) -> Verdict:
    used = _count(e.data["ids"] for events in by_step.values() for e in events.values())
    due = _count(batch for batches in expected.values() for batch in batches.values())
    odd = [
        r for r in sorted({*here, *wanted}) if r not in here or sorted(here[r].data["ids"]) != sorted(wanted.get(r, []))
    ]
    at = here.get(odd[0])
    lost, twice = sorted((due - used).elements()), sorted((used - due).elements())
    return invalid(
        f"{listed(odd)} used other samples in update {step} than the fault-free run; over the whole run "
        f"{len(lost)} are lost and {len(twice)} used once too often",
        at,
        rank=odd[0],
        step=step,
        seen={
            "used": {f"rank {r}": here[r].data["ids"] if r in here else None for r in odd},
            "expected": {f"rank {r}": wanted.get(r) for r in odd},
            "lost": lost[:50],
            "used too often": twice[:50],
        },
    )


def _used_twice(history: History, line: Line, expected: object) -> Verdict | None:
    """A sample used again in its epoch, but for padding: a distributed sampler repeats up to W - 1 at the end."""
    counted = {id(e) for steps in line.values() for e in steps.values()}
    same = {restart: same_loaders(history, restart) for restart in range(history.restarts + 1)}

    def loader_of(event: Event) -> int | None:
        return same[event.restart].get((event.rank, event.data["loader"]))

    # Without a sampler that divides one data set among the ranks, ids may be numbers within a rank's own part.
    local = {loader_of(e) for e in history.of(Kind.LOADER) if not e.data.get("distributed", True)}
    passes: dict[tuple[Any, ...], list[tuple[Event, list[int]]]] = {}
    for update, batches, is_known in with_batches(history):
        if id(update) in counted:
            parts = [(loader_of(b), b.data["epoch"], b.data["ids"]) for b in batches]
            if not is_known:
                parts = [(parts[-1][0] if parts else None, update.data["epoch"], update.data["ids"])]
            for loader, epoch, ids in parts:
                own = update.rank if loader in local else None
                passes.setdefault((loader, epoch, own), []).append((update, ids))
    # One that never ends, or gives more than there is, repeats samples by design.
    repeating = {loader_of(e) for e in history.of(Kind.LOADER) if "samples" in e.data and e.data["length"] is None}
    for (loader, epoch, _own), uses in passes.items():
        if epoch is None or loader in repeating:
            continue
        uses.sort(key=lambda use: (use[0].step, use[0].rank))
        last_step = uses[-1][0].step
        first_use: dict[int, Event] = {}
        padding = 0
        for update, ids in uses:
            for sample in ids:
                if sample not in first_use:
                    first_use[sample] = update
                    continue
                first = first_use[sample]
                if expected is not None and first.restart != update.restart:
                    continue  # the fault-free run vouches for it; a sampler without epochs counts anew after a restart
                padding += 1
                if update.step != last_step or padding >= history.plan.ranks:
                    return invalid(
                        f"sample {sample} is used again in epoch {epoch}: update {update.step} of rank {update.rank}, "
                        f"after update {first.step} of rank {first.rank} (is the sampler the same on all ranks, and is "
                        "set_epoch called?)",
                        update,
                        seen={"sample": sample, "epoch": epoch, "first use": first.where},
                    )
    return None
