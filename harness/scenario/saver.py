"""A scenario of the other kind: a save function, every crash that can meet it, and what must come of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from harness.faults.base import FORBID_EXTRA

ModelName = Literal["kill", "ext4-ordered", "posix-min", "alice"]
TroubleName = Literal[
    "disk-full", "io-error", "killed", "late-visible", "lying-fsync", "read-only", "slow", "two-writers"
]
FailingVerdict = Literal["lost-work", "lost-ack", "wrong-state", "refused", "hang", "ranks-disagree"]


@dataclass(frozen=True, kw_only=True)
class ExpectStates:
    """What the states must be worth, and what is loaded after trouble.

    Attributes:
        outcome: valid (every load gives the newest acknowledged save, or a newer one) or broken.
        verdicts: for broken: the ways to fail that must be seen, and no others.
        model: for broken: the weakest kind of crash that it must fail under.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = FORBID_EXTRA

    outcome: Literal["valid", "broken"]
    verdicts: tuple[FailingVerdict, ...] = ()
    model: ModelName | None = None


class SaverScenario(BaseModel):
    """A save function that meets every crash.

    Attributes:
        title: one sentence: what is saved how, and what must come of it.
        saver: path of a Python file (from this file's folder) with save(directory, step) and load(directory).
        models: the kinds of crash: kill, ext4-ordered, posix-min, alice.
        troubles: what else goes wrong while a save runs, each tried wherever it can come: disk-full, io-error, killed,
            late-visible, lying-fsync, read-only, slow, two-writers.
        most_states: how many to try of each kind; where there are more, a choice is made and said.
        seed: of that choice.
        deadline_s: bound of the whole test, in seconds.
        expect: what must come of it.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    title: str = ""
    saver: str = Field(min_length=1)
    models: tuple[ModelName, ...] = Field(("kill", "ext4-ordered", "posix-min", "alice"), min_length=1)
    troubles: tuple[TroubleName, ...] = ()
    most_states: int = Field(20_000, ge=1)
    seed: int = Field(0, ge=0)
    deadline_s: float = Field(120.0, gt=0, allow_inf_nan=False)
    expect: ExpectStates

    _file: Path | None = PrivateAttr(None)

    @property
    def file(self) -> Path | None:
        """The file it was loaded from; None if it was made in code."""
        return self._file

    @property
    def saver_file(self) -> Path:
        """Absolute path of the file with the two functions; it need not exist."""
        here = self._file.parent if self._file is not None else Path.cwd()
        return (here / self.saver).resolve()
