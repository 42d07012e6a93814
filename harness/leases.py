"""Exclusive use of GPUs across processes: a lease is one file lock for each GPU, freed by the kernel with its holder.

Everything here is data and files, so that the decisions are tested on a machine that has no GPU.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout
from tenacity import RetryError, Retrying, retry_if_result, stop_after_delay, wait_fixed

from harness.errors import LaunchError, UnavailableError

VISIBLE_ENV = "CUDA_VISIBLE_DEVICES"
POLL_S = 0.05  # file locks cannot be waited for together, so a full pool is asked again


@dataclass(frozen=True)
class GpuLease:
    """GPUs that are ours until the ``with`` block of ``GpuPool.lease`` ends.

    Attributes:
        gpus: their ids, in the pool's order.
    """

    gpus: tuple[str, ...]

    @property
    def env(self) -> dict[str, str]:
        """What a launcher adds to the environment of the ranks: they see these GPUs, numbered from 0, and no other."""
        return {VISIBLE_ENV: ",".join(self.gpus)}


@dataclass(frozen=True)
class GpuPool:
    """The GPUs of this machine that this process may ask for.

    Two processes exclude each other if they name a GPU alike and use the same ``lock_dir``.

    Attributes:
        gpus: ids as CUDA_VISIBLE_DEVICES spells them, lowest-numbered first.
        lock_dir: where the lock files lie: on a local file system, the same for every process of this machine.
    """

    gpus: tuple[str, ...]
    lock_dir: Path

    @contextmanager
    def lease(self, num_gpus: int, timeout_s: float) -> Iterator[GpuLease]:
        """Hold ``num_gpus`` GPUs for as long as the block runs: of those that are free the lowest-numbered.

        Whoever comes first is served first, also if the first one needs more GPUs than are free: a large request
        never starves behind small ones, and two that are both half served never wait for each other.

        Raises:
            UnavailableError: there are fewer than ``num_gpus`` at all; says how many are missing.
            LaunchError: they did not become free within ``timeout_s``; says how many were.
        """
        if (missing := num_gpus - len(self.gpus)) > 0:
            raise UnavailableError(
                f"{num_gpus} GPUs needed, {_listed(self.gpus)}: {missing} missing; "
                f"run on a machine with {num_gpus} GPUs, or widen {VISIBLE_ENV}"
            )
        self.lock_dir.mkdir(parents=True, exist_ok=True)
        deadline_s = time.monotonic() + timeout_s
        with ExitStack() as held:
            with _queue(self.lock_dir, timeout_s):
                gpus = self._take(num_gpus, max(0.0, deadline_s - time.monotonic()), held)
            yield GpuLease(gpus)

    def _take(self, num_gpus: int, timeout_s: float, held: ExitStack) -> tuple[str, ...]:
        taken: list[str] = []

        def still_missing() -> int:
            for gpu in self.gpus:
                if len(taken) < num_gpus and gpu not in taken:
                    try:
                        held.enter_context(_lock(self.lock_dir / f"gpu-{gpu.replace('/', '_')}.lock", timeout_s=0))
                    except Timeout:
                        continue
                    taken.append(gpu)
            return num_gpus - len(taken)

        until_enough = Retrying(stop=stop_after_delay(timeout_s), wait=wait_fixed(POLL_S), retry=retry_if_result(bool))
        try:
            until_enough(still_missing)
        except RetryError:
            missing = num_gpus - len(taken)
            raise LaunchError(
                f"{num_gpus} GPUs needed, {_listed(self.gpus)}, but {len(taken)} free within {timeout_s:.3g} s: "
                f"{missing} missing; other runs hold the locks in {self.lock_dir}: wait for them or end them"
            ) from None
        return tuple(sorted(taken, key=self.gpus.index))


def visible_gpus(num_found: int, environ: Mapping[str, str]) -> tuple[str, ...]:
    """The GPU ids that ``CUDA_VISIBLE_DEVICES`` leaves of ``num_found``; all of them, by number, if it is not set.

    As CUDA reads it: an entry that is no GPU of this machine hides all that follow. Entries by UUID are taken as
    they stand.
    """
    if (setting := environ.get(VISIBLE_ENV)) is None:
        return tuple(str(index) for index in range(num_found))
    visible: list[str] = []
    for entry in (part.strip() for part in setting.split(",")):
        is_uuid = entry.startswith(("GPU-", "MIG-"))
        if entry in visible or not (is_uuid or (entry.isdecimal() and int(entry) < num_found)):
            break
        visible.append(entry)
    return tuple(visible)


def gpu_pool(num_found: int, environ: Mapping[str, str] = os.environ) -> GpuPool:
    """The pool of this machine's GPUs, shared by all processes of this user.

    Args:
        num_found: how many GPUs the machine has (``harness.probes`` counts them in a child process).
    """
    return GpuPool(visible_gpus(num_found, environ), Path(tempfile.gettempdir()) / f"chaos-leases-{os.getuid()}")


def _listed(gpus: Sequence[str]) -> str:
    return f"{len(gpus)} visible ({', '.join(gpus)})" if gpus else "0 visible"


def _lock(path: Path, timeout_s: float) -> FileLock:
    # thread_local=False: pytest-timeout's thread may be the one that gives the lease back.
    return FileLock(path, timeout=timeout_s, thread_local=False)


@contextmanager
def _queue(lock_dir: Path, timeout_s: float) -> Iterator[None]:
    turn = _lock(lock_dir / "queue.lock", timeout_s)
    try:
        turn.acquire()
    except Timeout:
        raise LaunchError(
            f"no turn to lease GPUs within {timeout_s:g} s: others wait at {turn.lock_file}; let them finish first"
        ) from None
    try:
        yield
    finally:
        turn.release()
