"""What is true of an evaluation: a function of the scenario's, called by rank 0 right after it, that leaves no trace.

It gets the very model that was evaluated and the whole data set of its loader, where nothing is sharded or padded.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from harness.checkpoint.rng import rng_state, set_rng_state
from harness.rank import collectives
from harness.rank.recorder import Recorder
from harness.rank.steps import Steps
from harness.wire import Kind

MODULE = "chaos_metric_reference"


class Reference:
    """The function ``metric`` of the file at ``path``, which is imported now: before the script has drawn a number.

    That it cannot be imported, and whatever it raises, goes on record and never into training.
    """

    def __init__(self, path: str, recorder: Recorder, steps: Steps) -> None:
        self._recorder, self._steps = recorder, steps
        self._metric: Callable[[torch.nn.Module, Any], Any] | None = None
        self._problem = ""
        try:
            self._metric = _load(path)
        except Exception as error:
            self._problem = f"{path} cannot be used: {type(error).__name__}: {error}"

    def ask(self, model: torch.nn.Module, dataset: Any) -> None:
        """Record what is true of an evaluation of ``model`` on ``dataset`` that has just come to its end."""
        value, problem = None, self._problem
        if self._metric is not None:
            if isinstance(model, DistributedDataParallel):
                model = model.module  # its own forward pass may broadcast buffers
            try:
                with _without_a_trace(model, self._steps):
                    if (given := self._metric(model, dataset)) is None:
                        return
                    value = float(given)
            except Exception as error:
                problem = f"the reference raised {type(error).__name__}: {error}"
        self._steps.record_evaluated(Kind.METRIC, value=value, problem=problem)


def _load(path: str) -> Callable[[torch.nn.Module, Any], Any]:
    spec = importlib.util.spec_from_file_location(MODULE, path)
    if spec is None or spec.loader is None:
        raise ImportError("it is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[MODULE] = module
    spec.loader.exec_module(module)
    metric: Callable[[torch.nn.Module, Any], Any] = module.metric
    return metric


@contextmanager
def _without_a_trace(model: torch.nn.Module, steps: Steps) -> Iterator[None]:
    """Leave random generators, modes and the record as they are, and let nothing be sent."""
    drawn = rng_state()
    modes = [(module, module.training) for module in model.modules()]
    try:
        with steps.unseen(), collectives.refused(), torch.no_grad():
            model.eval()
            yield
    finally:
        for module, is_training in modes:
            module.training = is_training
        set_rng_state(drawn)
