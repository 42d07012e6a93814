"""The checkpoint directory as the run saw it: what lay there when, what was chosen to resume from, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from harness.history import History
from harness.report.words import ranges
from harness.wire import Event, Kind


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One name in the checkpoint directory, as it was judged.

    Attributes:
        verdict: ``complete``, ``temporary``, ``trash`` or what is wrong with it.
        manifest: sha256 of its manifest, empty if it has none that counts.
    """

    name: str
    step: int | None
    verdict: str
    reason: str
    manifest: str
    is_chosen: bool = False


@dataclass(frozen=True, kw_only=True)
class Look:
    """What lay in the directory at one moment; newest first.

    Attributes:
        title: when, in words.
        choice: what was chosen, and why; empty if nothing had to be.
    """

    at_s: float
    restart: int
    title: str
    entries: tuple[Entry, ...]
    choice: str = ""
    where: str = ""


def looks(history: History) -> list[Look]:
    """The choices of each launch, then the directory as it was last seen; by time."""
    found = [_choice(history, restart) for restart in range(history.restarts + 1)]
    inventories = history.of(Kind.INVENTORY)
    if inventories:
        last = inventories[-1]
        title = f"at the end: last seen in {last.phase} of step {last.step}"
        found.append(_look(history, last, title, _entries(last.data.get("entries"), None)))
    return [look for look in found if look is not None]


def foreign(history: History) -> list[str]:
    """Saves and loads that went past the checkpoint store, one line for each way and path."""
    counts: dict[tuple[str, str, str], int] = {}
    for event in history.of((Kind.FOREIGN_SAVE, Kind.FOREIGN_LOAD)):
        key = (event.kind.split("_")[1], str(event.data.get("by")), str(event.data.get("path")))
        counts[key] = counts.get(key, 0) + 1
    return [f"{what} by {by}: {path} ({count} times)" for (what, by, path), count in counts.items()]


def _choice(history: History, restart: int) -> Look | None:
    loads = [event for event in history.of(Kind.LOAD) if event.restart == restart]
    if not loads:
        return None
    chosen = {str(event.data.get("path")): event for event in loads}
    path = PurePath(next(iter(chosen))).name if loads[0].data.get("path") is not None else None
    seen = next(
        (e for e in history.of(Kind.INVENTORY) if e.restart == restart and e.phase == "load"),
        None,
    )
    candidates = _entries(loads[0].data.get("candidates"), path)
    listed = _entries(seen.data.get("entries"), path) if seen is not None else ()
    entries = listed or candidates
    name = f"restart {restart}" if restart else "first launch"
    look = _look(history, loads[0], f"{name}: what the reader saw and chose", entries)
    return Look(**{**vars(look), "choice": _why(loads, chosen, path, entries)})


def _why(loads: list[Event], chosen: Mapping[str, Event], path: str | None, entries: tuple[Entry, ...]) -> str:
    who = ranges(event.rank for event in loads)
    if len(chosen) > 1:
        parts = [
            f"{ranges(e.rank for e in loads if str(e.data.get('path')) == each)} took {PurePath(each).name}"
            for each in chosen
        ]
        return f"The ranks do not agree: {'; '.join(parts)}."
    if path is None:
        if not entries:
            return f"The directory was empty, so {who} began from the start."
        return f"Nothing here is complete, so {who} began from the start."
    taken = next((entry for entry in entries if entry.name == path), None)
    said = f"{who} took {path}."
    if taken is None:
        return f"{said} Nothing tells what state it was in."
    said += f" It is {taken.verdict}: {taken.reason}."
    for entry in entries:
        if not entry.is_chosen and (entry.step is None or taken.step is None or entry.step >= taken.step):
            said += f" {entry.name} is passed over, which is {entry.verdict}: {entry.reason}."
    return said


def _look(history: History, at: Event, title: str, entries: tuple[Entry, ...]) -> Look:
    at_s = (at.t_ns - history.outcome.started_ns) / 1e9
    return Look(at_s=at_s, restart=at.restart, title=title, entries=entries, where=at.where)


def _entries(raw: Any, chosen: str | None) -> tuple[Entry, ...]:
    """Newest first; records may hold anything."""
    found = [
        Entry(
            name=str(entry.get("name")),
            step=entry.get("step") if isinstance(entry.get("step"), int) else None,
            verdict=str(entry.get("verdict")),
            reason=str(entry.get("reason") or ""),
            manifest=str(entry.get("manifest") or ""),
            is_chosen=entry.get("name") == chosen,
        )
        for entry in (raw if isinstance(raw, list) else [])
        if isinstance(entry, dict)
    ]
    return tuple(sorted(found, key=lambda entry: -1 if entry.step is None else entry.step, reverse=True))
