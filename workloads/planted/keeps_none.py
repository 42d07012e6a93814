"""Retention counts one too many and deletes what was saved just now (huggingface/transformers#26961)."""

import functools

from harness.checkpoint import files, layout, retention, store
from workloads.planted import run


class KeepsNone(store.CheckpointStore):
    def _after_save(self, step: int) -> None:
        super()._after_save(step)
        look = functools.partial(self._tell_inventory, "retention", step, read_data=False)
        with files.open_root(self.root) as root_fd:
            for name in (layout.step_name(s) for s in self._verified):
                if files.exists(root_fd, name):
                    retention.retire(root_fd, name, self._own(), look)


run(store_class=KeepsNone)
