"""What was taken down of ranks that hung: who was asked, and torch's own record of the collectives."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

LAST_COLLECTIVES = 8  # of a record that are shown: of hundreds nobody reads more


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One process of a rank that was still there on the deadline, or that was stopped when it was told to end.

    Attributes:
        state: of the process just then, as the system calls it: ``running``, ``sleeping``, ``stopped``,
            ``disk-sleep``; one that was stopped has been continued, to answer.
    """

    rank: int
    restart: int
    pid: int
    state: str


@dataclass(frozen=True, kw_only=True)
class Flight:
    """The end of one process's flight record: torch's ring buffer of what it handed to the backend.

    Attributes:
        done: how many of the collectives that are still in it were done.
        unfinished: those that were not, the oldest first: ``all_reduce, number 4 of group 0``.
        last: the newest of both, the oldest first, with what was sent and whether it was done.
    """

    done: int
    unfinished: tuple[str, ...]
    last: tuple[str, ...] = ()


def load_flight(path: Path) -> Flight:
    """Read ``flight-K.json``.

    Raises:
        OSError, ValueError, TypeError, KeyError, AttributeError: it cannot be read, or is no such record.
    """
    entries = json.loads(path.read_text())["entries"]
    pending = [entry for entry in entries if not entry["retired"]]
    return Flight(
        done=len(entries) - len(pending),
        unfinished=tuple(map(_described, pending)),
        last=tuple(map(_in_full, entries[-LAST_COLLECTIVES:])),
    )


def _described(entry: dict[str, object]) -> str:
    name, group = str(entry["profiling_name"]), entry["process_group"]
    group_name = group[0] if isinstance(group, list) and group else group
    return f"{name.rpartition(':')[2]}, number {entry['collective_seq_id']} of group {group_name}"


def _in_full(entry: dict[str, object]) -> str:
    sizes, dtypes = entry["input_sizes"], entry["input_dtypes"]
    sent = [f"{dtype} {size}" for size, dtype in zip(_items(sizes), _items(dtypes), strict=False)]
    return f"{_described(entry)}: {', '.join(sent) or 'no tensor'}, {'done' if entry['retired'] else 'not done'}"


def _items(value: object) -> list[object]:
    return value if isinstance(value, list) else []
