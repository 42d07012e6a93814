"""Run by test_checkpoint_crash.py as a process of its own: imports torch once, then forks one job a line of stdin.

Each job saves steps 5 and 10, then 15 with a listener that ends it by SIGKILL at the failpoint asked for (in ``save``,
or in ``async_save`` if the case says ``beside``), or loads again with that listener (in ``load``). What it was told of
is in the file ``acknowledged`` beside its root.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any, NoReturn

import torch

from harness.checkpoint import points
from harness.checkpoint.store import CheckpointStore
from harness.wire import Kind


class Killer:
    def __init__(self, case: dict[str, Any], acknowledged: Path) -> None:
        self._case = case
        self._hits = 0
        self._acknowledged = acknowledged

    def reach(self, failpoint: str) -> None:
        if failpoint.endswith(":torn"):
            os.kill(os.getpid(), signal.SIGKILL)
        if self._case.get("part") is None and self._is_hit(failpoint):
            os.kill(os.getpid(), signal.SIGKILL)

    def part(self, name: str, size_bytes: int) -> int | None:
        if self._case.get("part") is None or not self._is_hit(f"{name}:torn"):
            return None
        return int(self._case["part"] * size_bytes)

    def tell(self, kind: Kind, step: int, **fields: Any) -> None:
        if kind is Kind.SAVE_END:
            with self._acknowledged.open("a") as file:
                file.write(f"{step}\n")

    def _is_hit(self, failpoint: str) -> bool:
        if failpoint != self._case["failpoint"]:
            return False
        self._hits += 1
        return self._hits == int(self._case.get("hit", 1))


def save(store: CheckpointStore, step: int, *, beside: bool = False) -> None:
    shared = {"model": {"weight": torch.full((100,), float(step))}, "progress": {"epoch": step}}
    if beside:
        store.async_save(step, shared, own={"position": step}).result()
    else:
        store.save(step, shared, own={"position": step})


def job(case: dict[str, Any]) -> None:
    root = Path(case["root"])
    killer = Killer(case, root.parent / "acknowledged")
    store = CheckpointStore(root, keep_last=2)
    store.load()
    save(store, 5)
    save(store, 10)
    points.listener = killer
    if ".load." in case["failpoint"]:
        store.load()
    else:
        save(store, 15, beside=case.get("beside", False))


def main() -> NoReturn:
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                job(json.loads(line))
                code = 0
            finally:
                os._exit(code)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)
    sys.exit(0)


if __name__ == "__main__":
    main()
