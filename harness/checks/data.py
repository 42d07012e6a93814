"""Do the ranks read the right samples, and equally many batches?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from harness.checks.base import Verdict, guarantee, invalid, not_applicable, unknown, valid
from harness.checks.batches import first_shift
from harness.checks.loaders import parting
from harness.checks.records import begun, ended_well, listed, unplaced
from harness.checks.samples import Use, counted, used_again
from harness.history import Baseline, History
from harness.wire import Kind


@guarantee(
    "LoadersAgree",
    "in each epoch every rank's loader hands out the same number of batches, and each update ends with the batch of "
    "the same number on all ranks",
)
def loaders_agree(history: History, _: Baseline | None) -> Verdict:
    count = history.count(Kind.LOADER)
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
    num_uses, num_unknown, samples = 0, 0, 0
    first = first_unknown = None
    steps: set[int] = set()
    for use in counted(history):
        first = first or use
        num_uses += 1
        samples += use.num_samples
        steps.add(use.step)
        if use.parts is None:
            num_unknown += 1
            first_unknown = first_unknown or use
    if first is None:
        return not_applicable("no update is on record")
    if num_unknown == num_uses:
        return not_applicable("the sample ids are not on record: the data set is not read by integer index")
    if first_unknown is not None:
        return unknown(
            f"the sample ids of {num_unknown} of {num_uses} updates are not on record", first_unknown.event(history)
        )
    if not samples and history.count(Kind.BATCH):
        return unknown("batches were read, and none is known to have been used in an update", first.event(history))
    if (state := unplaced(history)) is not None:
        return unknown(f"nothing tells at which step rank {state.rank} began", state)
    before = begun(history)
    expected = _expected(baseline, before)
    said = f"{samples} samples in {len(steps)} updates"
    said += f"; the {before} before them are of an earlier run" if before else ""
    return _unlike_baseline(history, expected) or _used_twice(history, expected) or valid(said)


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


def _unlike_baseline(history: History, expected: dict[int, dict[int, list[int]]] | None) -> Verdict | None:
    """The first step whose samples, over all ranks, are not those of the fault-free run."""
    if expected is None:
        return None
    by_step: dict[int, dict[int, Use]] = {}
    for use in counted(history):
        by_step.setdefault(use.step, {})[use.rank] = use
    wanted_steps = set(expected) if ended_well(history) else set(expected) & set(by_step)
    for step in sorted(set(by_step) | wanted_steps):
        here, wanted = by_step.get(step, {}), expected.get(step, {})
        if wanted.keys() - here.keys() and not ended_well(history):
            continue  # some ranks were stopped in this step
        if _count(use.ids(history) for use in here.values()) != _count(wanted.values()):
            return _lost_or_twice(history, step, wanted, by_step, expected)
    return None


def _count(batches: Iterable[Iterable[int]]) -> Counter[int]:
    return Counter(sample for batch in batches for sample in batch)


def _lost_or_twice(
    history: History,
    step: int,
    wanted: Mapping[int, list[int]],
    by_step: Mapping[int, Mapping[int, Use]],
    expected: Mapping[int, Mapping[int, list[int]]],
) -> Verdict:
    used = _count(use.ids(history) for uses in by_step.values() for use in uses.values())
    due = _count(batch for batches in expected.values() for batch in batches.values())
    here = {rank: use.ids(history) for rank, use in by_step.get(step, {}).items()}
    odd = [r for r in sorted({*here, *wanted}) if r not in here or sorted(here[r]) != sorted(wanted.get(r, []))]
    at = by_step[step][odd[0]].event(history) if odd[0] in here else None
    lost, twice = sorted((due - used).elements()), sorted((used - due).elements())
    return invalid(
        f"{listed(odd)} used other samples in update {step} than the fault-free run; over the whole run "
        f"{len(lost)} are lost and {len(twice)} used once too often",
        at,
        rank=odd[0],
        step=step,
        restart=history.restarts if at is None else at.restart,  # never made: the last launch ended without it
        seen={
            "used": {f"rank {r}": here.get(r) for r in odd},
            "expected": {f"rank {r}": wanted.get(r) for r in odd},
            "lost": lost[:50],
            "used too often": twice[:50],
        },
    )


def _used_twice(history: History, expected: object) -> Verdict | None:
    """A sample used again in its epoch, but for padding."""
    found = used_again(history, is_vouched_for=expected is not None)
    if found is None:
        return None
    first, again = found.first.event(history), found.again.event(history)
    return invalid(
        f"sample {found.sample} is used again in epoch {found.epoch}: update {again.step} of rank {again.rank}, "
        f"after update {first.step} of rank {first.rank} (is the sampler the same on all ranks, and is "
        "set_epoch called?)",
        again,
        seen={"sample": found.sample, "epoch": found.epoch, "first use": first.where},
    )
