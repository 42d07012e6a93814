"""The one exception tree.

HarnessError
|- ScenarioError        a scenario file is wrong; carries every problem found in it
|- UnavailableError     this machine cannot run it; carries what is missing (a skip, or a failure if required)
|- LaunchError          the ranks could not be started or ended
|- RecordError          a run directory is missing, damaged or not writable
|- SaverError           a user's save and load functions cannot be used, or a save failed
|- CheckpointError      a checkpoint could not be written or read
   |- SaveFailed        a save was given up on all ranks; nothing that was complete before is harmed
   |- LoadRefused       something is there, but nothing in it may be loaded

InjectedFault           what the fault ``raise`` raises inside a rank; not a HarnessError: it plays the user's bug
"""

from __future__ import annotations


class HarnessError(Exception):
    """Base of everything this package raises on purpose."""


class ScenarioError(HarnessError):
    """A scenario file that cannot be run, with all of its problems at once.

    Attributes:
        problems: one line each: ``file:line: field: what is wrong; what is allowed``.
    """

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems

    def __reduce__(self) -> tuple[type[ScenarioError], tuple[list[str]]]:
        return (type(self), (self.problems,))  # survives the trip between processes


class UnavailableError(HarnessError):
    """This machine lacks what the plan needs; the text names what is missing and how to get it."""


class LaunchError(HarnessError):
    """The ranks could not be started, or not be ended."""


class RecordError(HarnessError):
    """A run directory that cannot be read or written."""


class SaverError(HarnessError):
    """A user's file with ``save`` and ``load`` cannot be used, or its ``save`` failed; names the place and the cure."""


class CheckpointError(HarnessError):
    """A checkpoint could not be written or read.

    Attributes:
        ranks: those on which it failed; the others raise it with them. Empty where it is nobody's alone.
    """

    ranks: tuple[int, ...] = ()


class SaveFailed(CheckpointError):
    """A save was given up on every rank; checkpoints that were complete before are untouched."""


class LoadRefused(CheckpointError):
    """A checkpoint directory holds something, but nothing that may be loaded."""


class InjectedFault(RuntimeError):
    """Raised inside a rank by the fault ``raise``: it stands for a bug of the user's."""
