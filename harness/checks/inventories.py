"""What the harness found in the directories of checkpoints, while the job ran: see ``harness.wire.Kind.INVENTORY``."""

from __future__ import annotations

from typing import Any

from harness.history import History
from harness.remains import root_of
from harness.wire import Event, Kind

Entry = dict[str, Any]


def inventory_for(history: History, load: Event) -> Event | None:
    """The inventory taken when this restart began to load: of any rank, the last before this load's end."""
    taken = [e for e in history.of(Kind.INVENTORY) if e.restart == load.restart and e.data.get("why") == "load"]
    if load.data["path"] is not None:
        taken = [e for e in taken if e.data["root"] == root_of(load)]
    before = [e for e in taken if e.t_ns <= load.t_ns]
    return before[-1] if before else next(iter(taken), None)


def newest_complete(inventory: Event) -> Entry | None:
    """Of those that stood in it; None if there was none."""
    complete = [e for e in inventory.data["entries"] if e["verdict"] == "complete" and e["step"] is not None]
    return max(complete, key=lambda e: e["step"], default=None)


def beside_other_files(history: History) -> str:
    """What to add where our store told of nothing, but other code saved or loaded; else ""."""
    others = sorted({e.data["by"] for e in history.of((Kind.FOREIGN_SAVE, Kind.FOREIGN_LOAD))})
    if not others:
        return ""
    return f"; the files of {', '.join(others)} are not judged: nothing tells which are whole, nor when they count"


def brief(inventory: Event) -> dict[str, str]:
    """Name -> what it was found to be, for a verdict."""
    return {e["name"]: f"{e['verdict']}: {e['reason']}" for e in inventory.data["entries"]}
