"""Whether a complete checkpoint is always there: of each store by itself, which is known by its directory."""

from __future__ import annotations

from harness.checks.base import Verdict, guarantee, invalid, not_applicable, unknown, valid
from harness.checks.inventories import beside_other_files, brief, newest_complete
from harness.checks.records import saved_step
from harness.history import Baseline, History
from harness.remains import root_of
from harness.wire import Event, Kind


@guarantee("RetentionSafe", "once a save is done there is at every instant a complete checkpoint")
def retention_safe(history: History, _: Baseline | None) -> Verdict:
    firsts: dict[str, Event] = {}  # of each store
    for save in history.of(Kind.SAVE_END):
        firsts.setdefault(root_of(save), save)
    if not firsts:
        return not_applicable("no save was reported done" + beside_other_files(history))
    found = [_kept_safe(history, root, first) for root, first in firsts.items()]
    worst = min(found, key=lambda verdict: ("invalid", "unknown", "valid").index(verdict.outcome))
    if worst.outcome == "valid" and len(found) > 1:
        return valid(f"each of {len(found)} stores has kept a complete checkpoint")
    return worst


def _kept_safe(history: History, root: str, first: Event) -> Verdict:
    """Of one store, since its first save."""
    later = [e for e in history.of(Kind.INVENTORY) if e.t_ns > first.t_ns and e.data["root"] == root]
    if not later:
        return _left_safe(history, root, first)
    for inventory in later:
        if newest_complete(inventory) is None:
            return invalid(
                f"no complete checkpoint is left in {root} ({inventory.data.get('why')}), after the save of step "
                f"{saved_step(first)} was done",
                inventory,
                seen={"entries": brief(inventory)},
            )
    return valid(f"{len(later)} inventories, each with a complete checkpoint")


def _left_safe(history: History, root: str, first: Event) -> Verdict:
    """Of a job that ended so soon after its first save that no inventory was taken: what it has left."""
    if root not in history.remains:
        return unknown("no inventory was taken after the first save", first)
    if any(entry.verdict == "complete" for entry in history.remains[root]):
        return valid("the job has left a complete checkpoint")
    if any(event.data.get("damaged") for event in history.of(Kind.EFFECT)):
        return unknown("a fault has damaged what the job has left, and no inventory was taken before", first)
    return invalid(
        f"no complete checkpoint is left in {root} after the end, although the save of step {saved_step(first)} was "
        "done",
        first,
        seen={"entries": {entry.name: f"{entry.verdict}: {entry.reason}" for entry in history.remains[root]}},
    )
