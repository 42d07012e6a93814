"""What the file descriptors of the traced processes stand for."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Description:
    """An open file, which several descriptors and processes can share (open(2), "open file description").

    Attributes:
        offset: where the next read or write starts; None: not known, it was opened before we came.
        appends: O_APPEND.
        syncs: O_SYNC or O_DSYNC: each write is durable when it returns.
    """

    object: int
    offset: int | None = 0
    appends: bool = False
    syncs: bool = False


@dataclass(slots=True)
class Descriptors:
    """A table of file descriptors; those that are no files are not in it.

    Attributes:
        closing: those that execve closes.
    """

    files: dict[int, Description] = field(default_factory=dict)
    closing: set[int] = field(default_factory=set)

    def put(self, number: int, description: Description, *, closes: bool) -> None:
        self.files[number] = description
        self.set_closing(number, closes)

    def set_closing(self, number: int, closes: bool) -> None:
        if closes:
            self.closing.add(number)
        else:
            self.closing.discard(number)

    def drop(self, number: int) -> None:
        self.files.pop(number, None)
        self.closing.discard(number)

    def exec(self) -> None:
        for number in self.closing:
            self.files.pop(number, None)
        self.closing.clear()

    def copy(self) -> Descriptors:
        return Descriptors(dict(self.files), set(self.closing))


@dataclass(slots=True)
class WorkingDirectory:
    """Of one process, or of several that share it (CLONE_FS)."""

    object: int


@dataclass(slots=True)
class Process:
    """A process of a rank."""

    rank: int
    descriptors: Descriptors
    cwd: WorkingDirectory

    def child(self, flags: frozenset[str]) -> Process:
        """What clone(2) with these flags makes of it."""
        return Process(
            self.rank,
            self.descriptors if "CLONE_FILES" in flags else self.descriptors.copy(),
            self.cwd if "CLONE_FS" in flags else WorkingDirectory(self.cwd.object),
        )
