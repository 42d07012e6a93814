"""A field that is missing or of a wrong type is named with all that is needed to mend it, and makes no check crash."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin

import pytest

import harness.history
from harness._tests.histories import baseline, run
from harness._tests.stored_runs import killed_and_recovered, write_history
from harness._tests.test_faults import ONE_OF_EACH
from harness.checks import GUARANTEES
from harness.event_fields import FIELDS, OF_FAULT, REQUIRED, wrong
from harness.expect import judge
from harness.faults import KINDS, At, Fault
from harness.faults.kill import Kill
from harness.history import load_history
from harness.wire import Event, Kind

KILL = Kill(rank=1, at=At(step=8, phase="backward"))


def event(kind: str, **data: Any) -> Event:
    return Event(rank=0, restart=0, seq=1, t_ns=1, kind=kind, step=1, phase="init", data=data)


def whole(kind: Kind, fault: str = "", pick: int = 0, **data: Any) -> Event:
    """An event with what it must have and no more; ``pick``: which of several values each field has."""
    names = f"{REQUIRED[kind]} {OF_FAULT.get((kind, fault), '')}".split()
    fields = {name: sample(FIELDS[kind][name], pick) for name in names}
    return event(kind, **fields | ({"fault": fault} if fault else {}) | data)


def sample(wanted: Any, pick: int) -> Any:
    kind = get_args(wanted)[0] if isinstance(wanted, UnionType) else wanted
    return {int: (0, 7), float: (0.0, 7.5), str: ("", "a"), bool: (False, True), list: ([], [])}[
        get_origin(kind) or kind
    ][pick]


ENTRY = {"name": "step-1", "step": 1, "verdict": "complete", "reason": None, "manifest": None}
WRONG: dict[str, tuple[Kind, dict[str, Any], str]] = {
    "words for a number": (
        Kind.COLLECTIVE,
        {"numel": "many"},
        'numel of this collective event is "many"; it must be a whole number',
    ),
    "a fraction": (Kind.COLLECTIVE, {"numel": 5.5}, "numel of this collective event is 5.5; it must be a whole number"),
    "a flag for a number": (Kind.EXIT, {"code": True}, "code of this exit event is true; it must be a whole number"),
    "a number for a flag": (Kind.BATCH, {"aside": 1}, "aside of this batch event is 1; it must be true or false"),
    "a list for words": (Kind.COLLECTIVE, {"op": ["a"]}, 'op of this collective event is ["a"]; it must be text'),
    "null where something must be": (Kind.UPDATE, {"lr": None}, "lr of this update event is null; it must be a list"),
    "neither this nor null": (
        Kind.STATE,
        {"matched_step": "3"},
        'matched_step of this state event is "3"; it must be a whole number or null',
    ),
    "something else within a list": (
        Kind.UPDATE,
        {"ids": [1, "two"]},
        'ids[1] of this update event is "two"; it must be a whole number',
    ),
    "no list": (Kind.UPDATE, {"ids": 7}, "ids of this update event is 7; it must be a list or null"),
    "something else within a table of a list": (
        Kind.INVENTORY,
        {"entries": [ENTRY, ENTRY | {"name": 2}]},
        "entries[1].name of this inventory event is 2; it must be text",
    ),
    "a table that lacks something": (
        Kind.INVENTORY,
        {"entries": [{"name": "step-1"}]},
        'entries[0] of this inventory event is {"name": "step-1"}; it has no step',
    ),
    "a number that is none": (Kind.UPDATE, {"lr": [10**400]}, "lr[0] of this update event is 1000"),
    "something else below a name of the script's own": (
        Kind.EXIT,
        {"returned": {"world": {"calls": "3"}}},
        'returned[...].calls of this exit event is {"world": {"calls": "3"}}; it must be a whole number',
    ),
    "a list of another length": (
        Kind.EXIT,
        {"magnitudes": [["weight", 3]]},
        'magnitudes[0] of this exit event is ["weight", 3]; it must be a list of length 4',
    ),
    "what is long": (
        Kind.SHM,
        {"name": list(range(99))},
        f"name of this shm event is {str(list(range(99)))[:57]}...; it must be text",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_field_of_another_type_is_named_with_its_value_and_what_is_allowed(name: str) -> None:
    kind, data, said = WRONG[name]
    ((found, problem),) = wrong(kind, [whole(kind), whole(kind, **data)])
    assert found == whole(kind, **data)
    assert problem.startswith(said)


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        pytest.param(
            Kind.UPDATE, {"lr": [1, 0.5, float("nan"), 10**30]}, id="whole numbers, and no numbers, as numbers"
        ),
        pytest.param(Kind.UPDATE, {"ids": [10**30]}, id="a number beyond 64 bits"),
        pytest.param(Kind.UPDATE, {"newer": object}, id="a field that a newer rank side has"),
        pytest.param(Kind.COLLECTIVE, {}, id="fields that need not be there"),
        pytest.param(Kind.EFFECT, {"fault": "newer"}, id="a fault that a newer rank side has"),
        pytest.param(Kind.COLLECTIVE, {"op": "\ud800"}, id="text that cannot be written"),
    ],
)
def test_what_may_be_is_not_named(kind: Kind, data: dict[str, Any]) -> None:
    assert [*wrong(kind, [whole(kind, **data)])] == []


def test_nothing_is_asked_of_a_kind_that_a_newer_rank_side_has() -> None:
    assert [*wrong("newer", [event("newer", numel="many")])] == []


MISSING: dict[str, tuple[Event, str]] = {
    "a number": (event(Kind.START), "this start event has no pid; it must be there: a whole number"),
    "what may be null": (
        event(Kind.BATCH, loader=0, epoch=0, index=0),
        "this batch event has no ids; it must be there: a list or null",
    ),
    "a flag": (
        event(Kind.EXCEPTION, type="ValueError", message=""),
        "this exception event has no in_collective; it must be there: true or false",
    ),
    "what a fault of this kind measured": (
        event(Kind.EFFECT, index=0, fault="flip_bit", tensor="weight"),
        "this effect event has no elements; it must be there: a whole number",
    ),
    "a part of a model's state": (
        event(Kind.EXIT, code=0, params="p", buffers="b"),
        "this exit event has no optimizer; it must be there: text or null",
    ),
}


@pytest.mark.parametrize("name", MISSING)
def test_a_field_that_must_be_there_is_named_with_what_is_allowed(name: str) -> None:
    lacking, said = MISSING[name]
    assert [*wrong(lacking.kind, [lacking])] == [(lacking, said)]


@pytest.mark.parametrize(
    "told",
    [
        pytest.param(event(Kind.GRADIENT, error="two models"), id="why no gradient is known"),
        pytest.param(event(Kind.EFFECT, index=0, fault="flip_bit", problem="no bit 40"), id="why a fault did nothing"),
        pytest.param(event(Kind.EXIT, code=0), id="the end of a script without a model"),
    ],
)
def test_what_stands_for_the_rest_is_enough(told: Event) -> None:
    assert [*wrong(told.kind, [told])] == []


@pytest.mark.parametrize("kind", REQUIRED)
def test_each_required_field_is_missed(kind: Kind) -> None:
    for name in REQUIRED[kind].split():
        lacking = event(kind, **{n: value for n, value in whole(kind).data.items() if n != name})
        ((_, said),) = wrong(kind, [whole(kind), lacking])
        assert said.startswith(f"this {kind} event has no {name}; ")


@pytest.mark.parametrize("pick", [0, 1], ids=["of values that say nothing", "of values that say something"])
@pytest.mark.parametrize("fault", ONE_OF_EACH, ids=lambda fault: str(fault.kind))
def test_whether_a_fault_acted_is_told_from_what_must_be_there(fault: Fault, pick: int) -> None:
    marked = [whole(Kind.COLLECTIVE, faulted=mark) for mark in ("skipped", "extra")]
    for missing in (None, *REQUIRED):  # as each may come first
        after = [whole(kind, fault.kind, pick) for kind in REQUIRED if kind is not missing]
        fault.missing_effect(whole(Kind.FAULT, fault.kind, pick), [*after, *marked])


FIRST_FORMAT: dict[Kind, str] = {  # of records that may still be kept somewhere
    Kind.START: "pid local_rank world_size local_world_size host master_addr master_port device script",
    Kind.GROUP: "group ranks backend",
    Kind.LOADER: "loader epoch length",
    Kind.BATCH: "loader epoch index ids",
    Kind.LOADER_END: "loader epoch batches",
    Kind.COLLECTIVE: "group call op reduce_op numel dtype root site",
    Kind.UPDATE: "params optimizer buffers scaler rng lr ids epoch batches",
    Kind.STATE: "params optimizer buffers",
    Kind.SAVE_START: "path",
    Kind.SAVE_END: "path manifest",
    Kind.SAVE_ERROR: "path error",
    Kind.INVENTORY: "root entries why",
    Kind.LOAD: "path loaded_step manifest candidates",
    Kind.FAULT: "index fault effect",
    Kind.EXCEPTION: "type message site in_collective",
    Kind.EXIT: "code params optimizer buffers",
}


@pytest.mark.parametrize("kind", FIRST_FORMAT)
def test_what_the_first_records_did_not_have_is_not_required(kind: Kind) -> None:
    first = FIRST_FORMAT[kind].split()
    told = event(kind, **{name: sample(FIELDS[kind][name], 1) for name in first})
    assert [*wrong(kind, [told])] == []


def test_each_kind_that_has_fields_is_in_the_tables() -> None:
    assert set(Kind) - set(FIELDS) == {Kind.RENDEZVOUS_START, Kind.RENDEZVOUS_END, Kind.PHASE}
    assert FIELDS.keys() == REQUIRED.keys()
    assert {fault for _, fault in OF_FAULT} <= KINDS.keys()


GONE = object()
ODD: list[Any] = [GONE, "odd", -1.5, True, None, {"odd": 1}, [{"odd": -1.5}]]


def test_no_field_of_any_type_makes_a_check_crash(tmp_path: Path) -> None:
    """Each field that this job records, left out, then with each odd value: its line is named, or all is as it was."""
    story = killed_and_recovered(run(faults=[KILL], expect="recovers", max_restarts=1))
    run_dir = write_history(story.history(), tmp_path / "run")
    assert load_history(run_dir).damaged == ()
    tried: set[tuple[str, str]] = set()
    for path in sorted(run_dir.glob("rank-*/events-*.jsonl")):
        text = path.read_text()
        for number, line in enumerate(lines := text.splitlines(), start=1):
            raw = json.loads(line)
            for name in (
                raw.keys() - {"t", "kind", "step", "phase"} - {name for kind, name in tried if kind == raw["kind"]}
            ):
                tried.add((raw["kind"], name))
                for odd in ODD:
                    changed = {key: value for key, value in {**raw, name: odd}.items() if value is not GONE}
                    edited = [*lines[: number - 1], json.dumps(changed), *lines[number:]]
                    path.write_text("\n".join(edited) + "\n")
                    history = load_history(run_dir)
                    judgement = judge(history, baseline())
                    assert not [v for v in judgement.verdicts if "traceback" in v.seen], (raw["kind"], name, odd)
                    if history.damaged:
                        where = f"{path.parent.name}/{path.name}:{number}: "
                        said = rf"{where}{name}\S* of this {raw['kind']} event is .+; it (must be|has no)"
                        if odd is GONE:
                            said = rf"{where}this {raw['kind']} event has no {name}; it must be there: "
                        assert re.match(said, history.damaged[0])
                        assert judgement.outcome != "passed"
        path.write_text(text)
    assert len(tried) > 50


def test_a_check_says_the_line_and_no_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    story = run().start().updates(1, 8).leave().edit(Kind.COLLECTIVE, rank=1, step=5, data={"numel": "many"})
    run_dir = write_history(story.history(), tmp_path / "run")
    history = load_history(run_dir)
    found = GUARANTEES["CollectivesAgree"].check(history, None)
    assert (found.outcome, found.seen) == ("unknown", {})
    said = 'rank-1/events-0.jsonl:19: numel of this collective event is "many"; it must be a whole number'
    assert found.reason.startswith(f"1 damaged line in the records, the first: {said}; ")
    monkeypatch.setattr(harness.history, "LARGE_BYTES", 0)
    piecewise = load_history(run_dir)
    assert piecewise.files is not None
    assert piecewise.damaged == history.damaged == (said,)
    assert piecewise.of(Kind.COLLECTIVE) == history.of(Kind.COLLECTIVE)
