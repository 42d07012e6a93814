"""What is loaded, and whether it was the right one.

What the store says is compared with the inventory that the harness takes of the same directory by itself.
"""

from __future__ import annotations

from pathlib import PurePath

from harness.checks.base import Verdict, guarantee, invalid, not_applicable, unknown, valid
from harness.checks.inventories import Entry, beside_other_files, brief, inventory_for, newest_complete
from harness.checks.never_loaded import begun_anew, unloaded_save
from harness.checks.records import by_rank, each, listed, load_of, saved_step, start_step, state_of
from harness.history import Baseline, History
from harness.remains import root_of
from harness.wire import Event, Kind


@guarantee("OnlyCompleteLoads", "a checkpoint without a valid COMPLETE, or whose bytes do not match, is never loaded")
def only_complete_loads(history: History, _: Baseline | None) -> Verdict:
    loads = [e for e in by_rank(history.of(Kind.LOAD)) if e.data["path"] is not None]
    if not loads:
        return not_applicable("no checkpoint was loaded" + beside_other_files(history))
    for load in loads:
        inventory = inventory_for(history, load)
        if inventory is None:
            return unknown(f"rank {load.rank} loaded {load.data['path']}, and no inventory was taken before", load)
        name = PurePath(load.data["path"]).name
        entry = next((e for e in inventory.data["entries"] if e["name"] == name), None)
        if entry is None or entry["verdict"] != "complete":
            found = "it was not there" if entry is None else f"it was {entry['verdict']}: {entry['reason']}"
            return invalid(
                f"rank {load.rank} loaded {name}, but {found}",
                load,
                step=load.data["loaded_step"],
                seen={"entry": entry, "inventory": inventory.where},
            )
        if problem := _not_the_same(load, entry):
            return invalid(
                f"rank {load.rank} loaded {name}, but {problem}",
                load,
                step=load.data["loaded_step"],
                seen={"entry": entry, "manifest loaded": load.data.get("manifest"), "inventory": inventory.where},
            )
    return valid(f"{len(loads)} loads, each of a complete checkpoint")


def _not_the_same(load: Event, entry: Entry) -> str | None:
    manifest = load.data.get("manifest")
    if manifest and entry.get("manifest") and manifest != entry["manifest"]:
        return f"with manifest {manifest[:12]}, and the one there was {entry['manifest'][:12]}"
    if entry["step"] is not None and load.data["loaded_step"] != entry["step"]:
        return f"says it is of step {load.data['loaded_step']}"
    return None


@guarantee(
    "NewestCompleteLoads",
    "all ranks load the newest checkpoint that is complete; none starts from zero while there is one",
)
def newest_complete_loads(history: History, _: Baseline | None) -> Verdict:
    if not history.of((Kind.LOAD, Kind.INVENTORY, Kind.SAVE_END, Kind.FOREIGN_SAVE)):
        return _began_anew(history) or not_applicable("no checkpoint is on record")
    compared, without_inventory = 0, None
    for restart in range(history.restarts + 1):
        loads = {e.rank: e for e in history.of(Kind.LOAD) if e.restart == restart}
        if verdict := _disagreeing(loads):
            return verdict
        if verdict := _started_without(history, restart, loads) or _looked_elsewhere(history, restart, loads):
            return verdict
        for _rank, load in sorted(loads.items()):
            inventory = inventory_for(history, load)
            if inventory is None:
                without_inventory = without_inventory or load
                continue
            newest = newest_complete(inventory)
            if newest is None:
                continue
            compared += 1
            if load.data["path"] is None or load.data["loaded_step"] != newest["step"]:
                given = "nothing" if load.data["path"] is None else f"step {load.data['loaded_step']}"
                return invalid(
                    f"rank {load.rank} was given {given}, but the newest complete checkpoint was {newest['name']}",
                    load,
                    step=newest["step"],
                    seen={"entries": brief(inventory), "candidates": load.data.get("candidates")},
                )
    if without_inventory is not None:
        return unknown("a load without an inventory taken before it", without_inventory)
    if verdict := _maybe_started_without(history):
        return verdict
    if not compared:
        return _began_anew(history) or not_applicable(
            "there was never a complete checkpoint to load" + beside_other_files(history)
        )
    return valid(f"{compared} loads of the newest complete checkpoint")


def _disagreeing(loads: dict[int, Event]) -> Verdict | None:
    given = {rank: (e.data["loaded_step"], e.data.get("manifest")) for rank, e in loads.items()}
    if len(set(given.values())) < 2:
        return None
    # The rank with the oldest is the one that lost something; ranks that agree are not in question.
    rank = min(given, key=lambda r: (given[r][0] is not None, given[r][0] or 0, r))
    steps = {f"rank {r}": step for r, (step, _) in sorted(given.items())}
    return invalid(
        f"the ranks were given different checkpoints: {each(steps, 'step {}', 'nothing')}",
        loads[rank],
        step=given[rank][0],
        seen={"loaded": steps, "manifests": {f"rank {r}": manifest for r, (_, manifest) in sorted(given.items())}},
    )


def _started_without(history: History, restart: int, loads: dict[int, Event]) -> Verdict | None:
    """Ranks that went to work without asking for a checkpoint, although one was there."""
    started = {e.rank: e for e in reversed(history.of(Kind.UPDATE)) if e.restart == restart and e.rank not in loads}
    if not started:
        return None
    begin_ns = min(e.t_ns for e in started.values())
    earlier = [e for e in history.of(Kind.INVENTORY) if e.t_ns < begin_ns]
    done = [e for e in history.of(Kind.SAVE_END) if e.t_ns < begin_ns and e.restart < restart]
    if earlier:
        complete = newest_complete(earlier[-1])
        newest = None if complete is None else complete["step"]
        known, seen = "complete", {"inventory": earlier[-1].where, "entries": brief(earlier[-1])}
    else:
        newest = max(map(saved_step, done), default=None)
        known, seen = "reported done", {"saves": [e.where for e in done]}
    for rank in sorted(started):
        state = state_of(history, rank, restart)
        if newest is not None and (state is None or state.step < newest):
            where = "an unknown state" if state is None else f"step {state.step}"
            return invalid(
                f"{listed(started)} loaded nothing and went on from {where}, although step-{newest} was {known}",
                state or started[rank],
                step=newest,
                seen=seen,
            )
    return None


def _looked_elsewhere(history: History, restart: int, loads: dict[int, Event]) -> Verdict | None:
    """Ranks that no load gave anything, although there was a checkpoint in a directory other than the last one."""
    given = {e.rank for e in history.of(Kind.LOAD) if e.restart == restart and e.data["path"] is not None}
    empty_handed = {rank: load for rank, load in loads.items() if rank not in given}
    if not empty_handed:
        return None
    rank, load = min(empty_handed.items())
    looked_at = {e.data["root"]: e for e in history.of(Kind.INVENTORY) if e.restart == restart and e.t_ns <= load.t_ns}
    there = {root: newest["step"] for root, e in looked_at.items() if (newest := newest_complete(e)) is not None}
    for save in history.of(Kind.SAVE_END):
        root = str(PurePath(save.data["path"]).parent)
        if save.restart < restart and root not in looked_at:
            there[root] = max(saved_step(save), there.get(root, 0))
    if not there:
        return None
    root, step = max(there.items(), key=lambda item: item[1])
    return invalid(
        f"{listed(empty_handed)} began with nothing, although step-{step} was in {root}",
        load,
        rank=rank,
        step=step,
        seen={"newest in each directory": there},
    )


def _maybe_started_without(history: History) -> Verdict | None:
    """The same where only the script knows whether what it saved is a checkpoint."""
    for restart in range(1, history.restarts + 1):
        if (found := unloaded_save(history, restart)) is not None:
            save, instead = found
            return unknown(
                f"in restart {restart} {instead}, although {save.data['by']} had written {save.data['path']} in step "
                f"{save.step}; if that is a checkpoint, it is never loaded; if the job is to begin at zero, say "
                "resume_step = 0",
                save,
            )
    return None


def _began_anew(history: History) -> Verdict | None:
    """A job that only ran twice has not gone on from anything; that may be meant, or be a script that never saves."""
    found = begun_anew(history)
    if found is None:
        return None
    first, said = found
    return unknown(
        f"{said}, and nothing that it saved since is on record: a script that saves in a way that is not seen did not "
        "load it; if the job is to begin at zero, say resume_step = 0",
        first,
    )


@guarantee("AcknowledgedSurvives", "a save that was reported done is still there after any crash")
def acknowledged_survives(history: History, _: Baseline | None) -> Verdict:
    saves = history.of(Kind.SAVE_END)
    if not saves and not history.plan.acknowledged:
        return not_applicable("no save was reported done" + beside_other_files(history))
    if verdict := _lost_before(history):
        return verdict
    compared = len(_started(history)) if history.plan.acknowledged else 0
    for load in by_rank(history.of(Kind.LOAD)):
        elsewhere = _other_roots(history, load)
        before = [
            e for e in saves if e.t_ns < load.t_ns and root_of(e) not in elsewhere and not _is_damaged(history, e, load)
        ]
        if not before:
            continue
        compared += 1
        newest = max(before, key=lambda e: (saved_step(e), -e.t_ns))
        if (load.data["loaded_step"] or 0) < saved_step(newest):
            given = "nothing" if load.data["path"] is None else f"step {load.data['loaded_step']}"
            return invalid(
                f"rank {newest.rank} was told that the save of step {saved_step(newest)} is done, but after the crash "
                f"rank {load.rank} was given {given}",
                load,
                step=saved_step(newest),
                seen={"acknowledged": newest.where, "candidates": load.data.get("candidates")},
            )
    if not compared:
        return not_applicable("nothing was loaded after the first save")
    return valid(f"{compared} loads found the newest save that was reported done")


def _other_roots(history: History, load: Event) -> set[str]:
    """Of stores that this rank loads from as well, in the same launch: theirs are other checkpoints."""
    loads = history.of(Kind.LOAD, rank=load.rank, restart=load.restart)
    return {root_of(e) for e in loads if e.data["path"] is not None} - {_root_looked_at(history, load)}


def _root_looked_at(history: History, load: Event) -> str | None:
    if load.data["path"] is not None:
        return root_of(load)
    inventory = inventory_for(history, load)
    return None if inventory is None else str(inventory.data["root"])


def _is_damaged(history: History, save: Event, load: Event) -> bool:
    """Whether a fault has damaged what was saved, by the time that it was to be loaded: no job can keep that."""
    name = PurePath(save.data["path"]).name
    damaged = [e for e in history.of(Kind.EFFECT) if e.data.get("damaged") == name]
    # One rank may be told later than another one trains on, and damages it.
    told = [e for e in history.of(Kind.SAVE_END, restart=save.restart) if e.data["path"] == save.data["path"]]
    saved_ns = min(e.t_ns for e in told)
    return any(saved_ns < e.t_ns < load.t_ns for e in damaged)


def _lost_before(history: History) -> Verdict | None:
    """What ``start_from`` was known to hold, and the first launch that got so far did not go on from."""
    acknowledged = history.plan.acknowledged
    if not acknowledged:
        return None
    for rank, state in _started(history).items():
        started = start_step(history, rank, state.restart)
        if started is None:
            return unknown(f"nothing tells from which step rank {rank} went on; {acknowledged} was due", state)
        if started[0] < acknowledged:
            given = f"step {started[0]}" if started[0] else "nothing"
            return invalid(
                f"the save of step {acknowledged} had been reported done before the crash, but rank {rank} went on "
                f"from {given}",
                started[1],
                step=acknowledged,
                seen={"start_from": history.plan.start_from},
            )
    return None


def _started(history: History) -> dict[int, Event]:
    """Of each rank the first load, or else state, that a launch of it went on from."""
    found: dict[int, Event] = {}
    for restart in range(history.restarts + 1):
        for rank in history.ranks:
            started = load_of(history, rank, restart) or state_of(history, rank, restart)
            if started is not None:
                found.setdefault(rank, started)
    return found
