"""What calling a user's function came to, on each rank. Plain data that crosses processes as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

NOTHING = "nothing"  # the digest of None


@dataclass(frozen=True)
class Loaded:
    """It returned.

    Attributes:
        digest: of what it returned, by content; NOTHING for None.
        summary: of the same, for people.
    """

    digest: str
    summary: str = field(compare=False, default="")

    @property
    def is_nothing(self) -> bool:
        return self.digest == NOTHING

    def __str__(self) -> str:
        return f"returned {self.summary}"


@dataclass(frozen=True)
class Raised:
    """It raised.

    Attributes:
        error: the exception's type, with its module unless that is builtins.
        message: not compared: it may hold addresses or names of temporary files.
        site: ``file:line`` in the user's code, or the innermost there is.
    """

    error: str
    message: str = field(compare=False)
    site: str

    def __str__(self) -> str:
        return f"raised {self.error} at {self.site}{f': {self.message}' if self.message else ''}"


@dataclass(frozen=True)
class Hung:
    """It did not return in time, and was ended.

    Attributes:
        stack: of all of its threads at that time.
    """

    deadline_s: float
    stack: str = field(compare=False, default="")

    def __str__(self) -> str:
        return f"did not return within {self.deadline_s:g} s"


@dataclass(frozen=True)
class Died:
    """Its process ended meanwhile.

    Attributes:
        how: ``SIGSEGV``, ``exit code 3``.
        output: the last that it wrote to stdout and stderr.
    """

    how: str
    output: str = field(compare=False, default="")

    def __str__(self) -> str:
        return f"its process ended ({self.how})"


@dataclass(frozen=True)
class Waiting:
    """It had not returned when another rank failed, and was ended."""

    def __str__(self) -> str:
        return "was still waiting when another rank failed"


RankOutcome = Loaded | Raised | Hung | Died | Waiting
_KINDS: dict[str, type[RankOutcome]] = {kind.__name__: kind for kind in (Loaded, Raised, Hung, Died, Waiting)}


@dataclass(frozen=True)
class Outcome:
    """Of one call on all ranks, by rank."""

    ranks: tuple[RankOutcome, ...]

    @property
    def has_returned(self) -> bool:
        return all(isinstance(rank, Loaded) for rank in self.ranks)

    @property
    def has_raised_alike(self) -> bool:
        """All ranks raised the same at the same line."""
        return len(set(self.ranks)) == 1 and isinstance(self.ranks[0], Raised)

    @property
    def cause(self) -> RankOutcome:
        """Of the first rank that failed by itself, not for another's sake; of rank 0 if none failed."""
        for rank in self.ranks:
            if not isinstance(rank, Loaded | Waiting):
                return rank
        return self.ranks[0]

    def __str__(self) -> str:
        if len(set(self.ranks)) == 1:
            return str(self.ranks[0])
        return "; ".join(f"rank {number} {rank}" for number, rank in enumerate(self.ranks))


def to_wire(outcome: RankOutcome) -> dict[str, Any]:
    return {"kind": type(outcome).__name__, **asdict(outcome)}


def from_wire(fields: dict[str, Any]) -> RankOutcome:
    fields = dict(fields)
    return _KINDS[fields.pop("kind")](**fields)
