"""Run a workload as real ranks, some lines changed where a test wants a mistake, and read what it saved."""

from __future__ import annotations

import runpy
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

import workloads
from harness._tests.launched import Run
from harness.faults.base import Fault
from harness.history import History
from harness.wire import Kind, output_path

WORKLOADS = Path(workloads.__path__[0])
BETA_1 = 0.9  # AdamW's, in every workload

Changes = Sequence[tuple[str, str]]  # what stands in the script once, and what stands there instead


@dataclass(frozen=True, kw_only=True)
class Ran:
    """A workload that has run.

    Attributes:
        checkpoints: the directory that it saved to.
    """

    history: History
    run_dir: Path
    checkpoints: Path

    @property
    def printed(self) -> str:
        """What all ranks printed; of those that fail alike, the agent may end some before they have said so."""
        return "".join(self.printed_by(rank) for rank in range(self.history.plan.ranks))

    def printed_by(self, rank: int) -> str:
        """What a rank printed in its last launch, errors too."""
        streams = (output_path(self.run_dir, rank, self.history.restarts, name) for name in ("stdout", "stderr"))
        return "".join(stream.read_text() for stream in streams)

    def part(self, step: int, part: str) -> Any:
        """A part of the checkpoint of ``step``: ``model``, ``optimizer``, ``rank-0``, ..."""
        return torch.load(self.checkpoints / f"step-{step}" / f"{part}.pt", weights_only=True)

    def gradient(self, step: int) -> torch.Tensor:
        """The gradient of update ``step``, all parameters together, float64: AdamW's first moment tells.

        ``step`` and the step before it must have been saved.
        """
        after, before = (self._first_moment(s) for s in (step, step - 1))
        return (after - BETA_1 * before) / (1 - BETA_1)

    def _first_moment(self, step: int) -> torch.Tensor:
        if step == 0:
            return torch.zeros((), dtype=torch.float64)
        state = self.part(step, "optimizer")["state"]
        return torch.cat([state[index]["exp_avg"].double().flatten() for index in sorted(state)])

    def sample_ids(self, rank: int, step: int) -> list[int]:
        """What the harness recorded of the samples that ``rank`` used in update ``step``."""
        ids = [e.data["ids"] for e in self.history.of(Kind.UPDATE, rank=rank) if e.step == step]
        return list(ids[-1])


def run_workload(
    run: Run,
    tmp_path: Path,
    name: str,
    *args: str,
    changes: Changes = (),
    ranks: int = 2,
    faults: Sequence[Fault] = (),
    max_restarts: int = 0,
    checkpoints: Path | None = None,
    fails: bool = False,
    **plan: Any,
) -> Ran:
    """Run ``workloads/NAME.py`` on ``ranks`` CPU ranks.

    Args:
        checkpoints: where to save, and to go on from; left out: a new directory.
        fails: whether it must fail, else it must end well.
        plan: further fields of the plan.
    """
    script = WORKLOADS / f"{name}.py"
    if changes:
        source, script = changed(name, changes), tmp_path / f"{name}.py"
        script.write_text(source)
    if checkpoints is None:
        checkpoints = Path(tempfile.mkdtemp(prefix="checkpoints-", dir=tmp_path))
    given = (*args, "--checkpoint-dir", str(checkpoints))
    history = run("", *faults, ranks=ranks, script=str(script), args=given, max_restarts=max_restarts, **plan)
    ran = Ran(history=history, run_dir=tmp_path / history.plan.name, checkpoints=checkpoints)
    assert (history.outcome.exit_code != 0) == fails, ran.printed
    return ran


def changed(name: str, changes: Changes) -> str:
    """The source of ``workloads/NAME.py`` with ``changes`` made."""
    source = (WORKLOADS / f"{name}.py").read_text()
    for old, new in changes:
        assert source.count(old) == 1, (
            f"this stands {source.count(old)} times in {name}.py, and should stand once: {old}"
        )
        source = source.replace(old, new)
    return source


def names_of(name: str, checkpoints: Path, *args: str) -> dict[str, Any]:
    """The global names of ``workloads/NAME.py`` after no update, on one CPU rank: its data and its model's classes."""
    with pytest.MonkeyPatch.context() as patch:
        for variable, value in {"RANK": 0, "LOCAL_RANK": 0, "WORLD_SIZE": 1, "MASTER_PORT": 0}.items():
            patch.setenv(variable, str(value))
        patch.setenv("MASTER_ADDR", "localhost")
        patch.setattr(torch.cuda, "is_available", lambda: False)
        patch.setattr(sys, "argv", [name, "--steps", "0", "--checkpoint-dir", str(checkpoints), *args])
        return runpy.run_path(str(WORKLOADS / f"{name}.py"))


def relative_difference(seen: torch.Tensor, expected: torch.Tensor) -> float:
    """Norm of the difference of two tensors by the norm of the second."""
    return float((seen.double() - expected.double()).norm() / expected.double().norm())


def content(checkpoint: Path) -> dict[str, Any]:
    """Every value in a checkpoint by its place; tensors as (dtype, shape, bytes)."""
    return {
        place: value
        for file in sorted(checkpoint.glob("*.pt"))
        for place, value in _leaves(torch.load(file, weights_only=True), file.stem)
    }


def _leaves(value: Any, place: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, torch.Tensor):
        yield place, (value.dtype, value.shape, value.numpy().tobytes())
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(item, f"{place}.{key}")
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from _leaves(item, f"{place}.{index}")
    else:
        yield place, value
