"""A save is reported done when it is begun, and written when the next one begins (KempnerForge#102)."""

import copy
from collections.abc import Mapping
from typing import Any

from harness.checkpoint import points, store
from harness.wire import Kind
from workloads.planted import run


class Deferred(store.CheckpointStore):
    _pending: tuple[int, Mapping[str, Any], Mapping[str, Any]] | None = None

    def save(self, step: int, shared: Mapping[str, Any], own: Mapping[str, Any]) -> Any:
        if self._pending is not None:
            super().save(*self._pending)
        self._pending = (step, copy.deepcopy(shared), copy.deepcopy(own))
        points.tell(Kind.SAVE_START, step, path=str(self.root / f"step-{step}"))
        points.tell(Kind.SAVE_END, step, path=str(self.root / f"step-{step}"), manifest=None)


run(store_class=Deferred)
