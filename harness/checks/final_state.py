"""Does a job end where an undisturbed one ends?"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

from harness.checks.base import Verdict, guarantee, invalid, not_applicable, unknown, valid
from harness.checks.records import ended_well, exits, listed, start_step, surviving, unplaced, updates
from harness.checks.replicas import SHARED, digests
from harness.history import Baseline, History
from harness.wire import GENERATORS, Event, Kind


@dataclass(frozen=True)
class _Unlike:
    """A final state that is not the fault-free run's, and the first update after which it was not."""

    what: str
    rank: int
    final: Event
    expected: str
    first: Event | None

    @property
    def moment(self) -> tuple[float, int]:
        return (inf, 0) if self.first is None else (self.first.restart, self.first.step)

    def other_inputs(self, baseline: Baseline) -> list[str]:
        """What else than in the fault-free run went into that update on this rank.

        Through the mean gradient the mistake of one rank shows on all in the same update: then it is this one's.
        """
        if self.first is None:
            return []
        ids = baseline.sample_ids.get(self.rank, {}).get(self.first.step)
        known = {**baseline.updates[self.rank][self.first.step], "ids": ids}
        pairs = [(words, _input(name, self.first.data), _input(name, known)) for name, words in _INPUTS.items()]
        return [
            words.format(now=now, then=then) for words, now, then in pairs if None not in (now, then) and now != then
        ]


_INPUTS = {
    "lr": "another learning rate ({now}, not {then})",
    "scaler": "another loss scale ({now}, not {then})",
    "ids": "other samples",
    **{part: f"other random numbers of {module}" for part, module in GENERATORS.items()},
    "rng": "other random numbers",
}
_SCALE = re.compile(r"\[([^\[\],]+), ")  # of [scale, updates since it last changed], one for each scaler


def _input(name: str, told: Mapping[str, object]) -> str | None:
    """As text; None if it is not known."""
    text = str(told.get(name))
    if name == "scaler" and text != "None":
        return f"[{', '.join(_SCALE.findall(text))}]"
    return None if text == "None" or (name == "lr" and text == "[]") else text


@guarantee("EndsLikeBaseline", "the final state is that of the fault-free run, byte for byte or within the tolerance")
def ends_like_baseline(history: History, baseline: Baseline | None) -> Verdict:
    if not ended_well(history):
        return not_applicable("the run failed: it has no final state")
    final = exits(history, history.restarts)
    with_model = {rank: e for rank, e in final.items() if e.data.get("params")}
    if final and not with_model:
        if history.of(Kind.UPDATE, restart=history.restarts):
            return unknown("updates are on record, but no final state", next(iter(final.values())))
        return _of_an_earlier_launch(history, baseline) or not_applicable("the script has no model on record")
    if missing := [rank for rank in history.ranks if rank not in with_model]:
        return unknown(f"the final state of rank {missing[0]} is not on record")
    if baseline is None:
        return unknown("there is no fault-free run to compare with")
    if history.plan.tolerance is not None:
        is_sharded = any(one.is_sharded for one in history.each(digests).values())
        compared = {0: with_model[0]} if is_sharded else with_model  # of shards the fault-free run keeps rank 0's alone
        return _near_final(baseline, compared, history.plan.tolerance)
    if baseline.repeatable is False:
        reason = baseline.reason or "two fault-free runs gave different digests"
        return unknown(f"the script is not repeatable: {reason}")
    if not baseline.final:
        return unknown(f"the fault-free run tells no final state: {baseline.reason or 'it has no model'}")
    return (
        _unlike_final(history, baseline, with_model)
        or _unlike_buffers(history, baseline)
        or valid(f"{' and '.join(SHARED)} of {len(with_model)} ranks equal the fault-free run's")
    )


def _of_an_earlier_launch(history: History, baseline: Baseline | None) -> Verdict | None:
    """Where the last launch loaded what was done already, and had nothing to do: the update that it loaded.

    None if there is no such update on record.
    """
    loaded = {rank: start_step(history, rank, history.restarts) for rank in history.ranks}
    made = {
        rank: event
        for rank, started in loaded.items()
        if started is not None
        for event in history.of(Kind.UPDATE, rank=rank, step=started[0])
    }  # of several the last one, which is the one that was saved last
    if not made or set(made) != set(history.ranks):
        return None
    if baseline is None:
        return unknown("there is no fault-free run to compare with")
    if baseline.repeatable is False:
        return unknown(f"the script is not repeatable: {baseline.reason or 'two fault-free runs differ'}")
    if history.plan.tolerance is not None:
        return not_applicable("the last launch made no update, and of earlier ones there are digests alone")
    for rank, event in sorted(made.items()):
        expected = baseline.updates.get(rank, {}).get(event.step)
        if expected is None:
            return unknown(f"the fault-free run made no update {event.step}", event)
        for what in SHARED:
            if what in expected and event.data[what] != expected[what]:
                first = _first_unlike(history, baseline, rank, what) or event
                return invalid(
                    f"the job ends with the state of update {event.step}, whose {what} on rank {rank} are not those of "
                    f"the fault-free run, and first differ after update {first.step}",
                    first,
                    seen={"update": event.data[what], "fault-free": expected[what]},
                )
    step = made[0].step
    same = valid(
        f"the last launch had nothing left to do, and update {step} of an earlier one equals the fault-free run's"
    )
    return _unlike_buffers(history, baseline) or same


def _unlike_final(history: History, baseline: Baseline, final: Mapping[int, Event]) -> Verdict | None:
    """The rank that ends otherwise and was the first to differ: with the next reduction the others do, too."""
    unlike: list[_Unlike] = []
    for what in SHARED:
        for rank, event in sorted(final.items()):
            expected = baseline.finals.get(rank, baseline.final)
            if what in expected and event.data[what] != expected[what]:
                first = _first_unlike(history, baseline, rank, what)
                unlike.append(_Unlike(what, rank, event, expected[what], first))
    if not unlike:
        return None
    found = min(unlike, key=lambda one: one.moment)  # of equal ones the parameters come first, and the lowest rank
    there = [one for one in unlike if one.what == found.what and one.moment == found.moment]
    there = [one for one in there if one.other_inputs(baseline)] or there
    found, alike = there[0], [one.rank for one in there]
    who = "all ranks" if 1 < len(alike) == len(final) else listed(alike)
    when = "" if found.first is None else f", and first differ after update {found.first.step}"
    if inputs := found.other_inputs(baseline):
        when += f", which rank {found.rank} made with {' and '.join(inputs)}"
    return invalid(
        f"the final {found.what} of {who} are not those of the fault-free run{when}",
        found.first or found.final,
        seen={"final": found.final.data[found.what], "fault-free": found.expected},
    )


def _unlike_buffers(history: History, baseline: Baseline) -> Verdict | None:
    """The first update after which rank 0 has other buffers than in the fault-free run.

    Rank 0's alone: its buffers are those that are saved and that DDP spreads; the others' may be local statistics.
    """
    last: dict[int, Event] = {e.step: e for e in history.of(Kind.UPDATE, rank=0)}
    expected = baseline.updates.get(0, {})
    if not last or max(last) not in expected or last[max(last)].data["buffers"] == expected[max(last)]["buffers"]:
        return None
    at = next(e for step, e in sorted(last.items()) if e.data["buffers"] != expected.get(step, {}).get("buffers"))
    return invalid(
        f"the final buffers of rank 0 are not those of the fault-free run, and first differ after update {at.step}",
        at,
        seen={"buffers": at.data["buffers"], "fault-free": expected[at.step]["buffers"]},
    )


def _near_final(baseline: Baseline, final: Mapping[int, Event], tolerance: float) -> Verdict:
    """Whether each parameter tensor may lie within ``tolerance`` of the fault-free run's, relative to its size.

    Elements that differ by at most tolerance * |element| change the norm by at most tolerance * norm, and the sum by at
    most tolerance * sqrt(elements) * norm (Cauchy-Schwarz): more than that in either is a difference beyond it.
    """
    if not baseline.magnitudes:
        return unknown(f"the fault-free run tells no final parameters: {baseline.reason or 'it has no model'}")
    largest = 0.0
    for rank, event in sorted(final.items()):
        found = {name: values for name, *values in event.data.get("magnitudes", ())}
        for name, numel, total, norm in baseline.magnitudes:
            if name not in found or found[name][0] != numel:
                return invalid(f"rank {rank} ends without the parameter {name} of {numel} elements", event)
            scale = norm or 1.0
            apart = max(abs(found[name][2] - norm) / scale, abs(found[name][1] - total) / (scale * numel**0.5))
            if not apart <= tolerance:  # NaN is beyond every tolerance
                return invalid(
                    f"parameter {name} of rank {rank} ends {apart:.3g} away from the fault-free run, "
                    f"the scenario allows {tolerance:g}",
                    event,
                    seen={"sum and norm": found[name][1:], "fault-free": [total, norm]},
                )
            largest = max(largest, apart)
    return valid(f"the parameters of {len(final)} ranks end within {largest:.2g} of the fault-free run's")


def _first_unlike(history: History, baseline: Baseline, rank: int, what: str) -> Event | None:
    """The first update of the rank whose digest is not the baseline's, of those that the final state came of."""
    if unplaced(history) is not None:
        return None  # its steps have other numbers
    expected = baseline.updates.get(rank, {})
    for step, event in surviving(updates(history)).get(rank, {}).items():
        if event.data[what] != expected.get(step, {}).get(what, event.data[what]):
            return event
    return None
