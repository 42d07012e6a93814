"""Retention keeps the last name of the alphabet, and step-10 comes before step-5 (huggingface/transformers#27138)."""

from __future__ import annotations

import shutil

from harness.checkpoint import store
from workloads.planted import run


class KeepsOne(store.CheckpointStore):
    def _after_save(self, step: int) -> None:
        super()._after_save(step)
        for old in sorted(self.root.glob("step-*"))[:-1]:
            shutil.rmtree(old)


run(store_class=KeepsOne)
