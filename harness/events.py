"""What the ranks recorded, process by process: the unit in which records are read, and reduced to what is compared.

Most of a healthy record says the same for every rank. A *view* is what a check compares of one process, without what
belongs to that process alone: equal views are kept once for all ranks, so that many ranks need hardly more memory than
one, and whether all did the same is told without a look at each event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from harness.wire import Event

Place = tuple[int, int]  # rank, restart
T = TypeVar("T", bound=tuple[Any, ...])

VIEWS: list[Callable[[Process], tuple[Any, ...]]] = []


@dataclass(frozen=True)
class Process:
    """The events of one process, by (t_ns, seq)."""

    rank: int
    restart: int
    events: Sequence[Event]

    @cached_property
    def by_kind(self) -> Mapping[str, list[Event]]:
        grouped: dict[str, list[Event]] = {}
        for event in self.events:
            grouped.setdefault(event.kind, []).append(event)
        return grouped

    def of(self, *kinds: str) -> list[Event]:
        """Those of these kinds; all if none is named."""
        if not kinds:
            return list(self.events)
        found = [self.by_kind[kind] for kind in dict.fromkeys(kinds) if kind in self.by_kind]
        return list(found[0]) if len(found) == 1 else [event for event in self.events if event.kind in kinds]


def order(event: Event) -> tuple[int, int, int]:
    """The key by which events are sorted."""
    return event.t_ns, event.rank, event.seq


def view(make: Callable[[Process], T]) -> Callable[[Process], T]:
    """Register a view, so that it is made while a large record is read, which happens once for all of them.

    It returns a NamedTuple. Its fields are compared, and never shown: equal ones stand for each other (1 for True).
    """
    VIEWS.append(make)
    return make


class Views:
    """What some views make of the processes that are added one after the other."""

    def __init__(self, views: Iterable[Callable[[Process], tuple[Any, ...]]]) -> None:
        self._found: dict[Callable[[Process], tuple[Any, ...]], dict[Place, tuple[Any, ...]]] = {v: {} for v in views}
        self._failed: dict[Callable[[Process], tuple[Any, ...]], Exception] = {}
        self._kept: dict[Any, Any] = {}

    def add(self, process: Process) -> None:
        for make, found in self._found.items():
            if make not in self._failed:
                try:
                    found[process.rank, process.restart] = self._kept_once(make(process))
                except Exception as error:  # of the check that asks for it, not of the others
                    self._failed[make] = error

    def of(self, view: Callable[[Process], T]) -> Mapping[Place, T] | None:
        """Process -> what the view made of it; None if it is none of these views.

        Raises: what the view raised.
        """
        if view in self._failed:
            raise self._failed[view]
        return self._found.get(view)  # type: ignore[return-value]

    def _kept_once(self, made: tuple[Any, ...]) -> tuple[Any, ...]:
        return type(made)(*map(self._once, made))

    def _once(self, value: Any) -> Any:
        try:
            return self._kept.setdefault(value, value)
        except TypeError:  # it has no hash: it is this process's own
            return value
