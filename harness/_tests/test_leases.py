"""Leases with fake GPUs, real lock files and real second processes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from harness.errors import LaunchError, UnavailableError
from harness.leases import GpuPool, gpu_pool, visible_gpus

HOLD = """
import sys
from pathlib import Path
from harness.leases import GpuPool
gpus, lock_dir, num_gpus = sys.argv[1].split(","), Path(sys.argv[2]), int(sys.argv[3])
with GpuPool(tuple(gpus), lock_dir).lease(num_gpus, timeout_s=20) as lease:
    print(",".join(lease.gpus), flush=True)
    sys.stdin.read()
"""

Hold = Callable[[int], tuple[subprocess.Popen[str], str]]


@pytest.fixture
def pool(tmp_path: Path) -> GpuPool:
    return GpuPool(("0", "1", "2", "3"), tmp_path / "locks")


@pytest.fixture
def hold(pool: GpuPool) -> Iterator[Hold]:
    """Start a process that leases GPUs and holds them until its stdin ends; returns it and the ids it got."""
    with ExitStack() as processes:

        def start(num_gpus: int) -> tuple[subprocess.Popen[str], str]:
            command = [sys.executable, "-c", HOLD, ",".join(pool.gpus), str(pool.lock_dir), str(num_gpus)]
            holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            processes.enter_context(holder)  # closes stdin, which ends the holder, and waits for it
            processes.callback(holder.kill)
            assert holder.stdout is not None
            return holder, holder.stdout.readline().strip()

        yield start


def test_a_lease_takes_the_lowest_numbered_gpus_and_frees_them(pool: GpuPool) -> None:
    with pool.lease(2, timeout_s=0) as first, pool.lease(1, timeout_s=0) as second:
        assert first.gpus == ("0", "1")
        assert second.env == {"CUDA_VISIBLE_DEVICES": "2"}
    with pool.lease(4, timeout_s=0) as all_of_them:
        assert all_of_them.env == {"CUDA_VISIBLE_DEVICES": "0,1,2,3"}


def test_a_gap_is_filled_lowest_first(pool: GpuPool) -> None:
    with ExitStack() as early, pool.lease(1, timeout_s=0) as kept:
        assert kept.gpus == ("0",)
        early.enter_context(pool.lease(1, timeout_s=0))
        with pool.lease(1, timeout_s=0):
            early.close()  # GPU 1 is free again, 2 is not
            with pool.lease(2, timeout_s=0) as filling:
                assert filling.gpus == ("1", "3")


def test_another_process_never_gets_the_same_gpu(pool: GpuPool, hold: Hold) -> None:
    assert hold(2)[1] == "0,1"
    with pool.lease(2, timeout_s=0) as ours:
        assert ours.gpus == ("2", "3")


def test_a_killed_holder_frees_its_gpus(pool: GpuPool, hold: Hold) -> None:
    holder, gpus = hold(4)
    assert gpus == "0,1,2,3"
    holder.kill()
    holder.wait()
    with pool.lease(4, timeout_s=5) as lease:
        assert len(lease.gpus) == 4


def test_a_lease_waits_until_the_holder_ends(pool: GpuPool, hold: Hold) -> None:
    holder, _ = hold(4)
    assert holder.stdin is not None
    holder.stdin.close()  # it gives its GPUs back one by one, so which come first is open
    with pool.lease(3, timeout_s=20) as lease, pool.lease(1, timeout_s=20) as other:
        assert sorted(lease.gpus + other.gpus) == ["0", "1", "2", "3"]


def test_too_few_gpus_says_how_many_are_missing_without_waiting(pool: GpuPool) -> None:
    with (
        pytest.raises(UnavailableError, match=r"6 GPUs needed, 4 visible \(0, 1, 2, 3\): 2 missing"),
        pool.lease(6, 99),
    ):
        pass


def test_busy_gpus_are_trouble_that_says_how_many_are_missing(pool: GpuPool, hold: Hold) -> None:
    hold(3)
    with pytest.raises(LaunchError, match=r"2 GPUs needed.*but 1 free within .* s: 1 missing"), pool.lease(2, 0.1):
        pass
    with pool.lease(1, timeout_s=0) as lease:  # what the failed attempt had taken is free again
        assert lease.gpus == ("3",)


def test_an_error_inside_the_lease_frees_it(pool: GpuPool) -> None:
    with pytest.raises(ZeroDivisionError), pool.lease(4, timeout_s=0):
        _ = 1 / 0
    with pool.lease(4, timeout_s=0):
        pass


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        pytest.param(None, ("0", "1", "2", "3"), id="not set: all, by number"),
        pytest.param("2,3", ("2", "3"), id="two of four"),
        pytest.param("3, 1", ("3", "1"), id="the order that was set is kept"),
        pytest.param("", (), id="set to nothing: none"),
        pytest.param("-1", (), id="the usual way to hide all"),
        pytest.param("0,9,1", ("0",), id="a number beyond the machine hides what follows"),
        pytest.param("1,1", ("1",), id="a GPU named twice counts once"),
        pytest.param("GPU-8a3c,MIG-77/1/0", ("GPU-8a3c", "MIG-77/1/0"), id="UUIDs are taken as they stand"),
    ],
)
def test_visible_gpus(setting: str | None, expected: tuple[str, ...]) -> None:
    assert visible_gpus(4, {} if setting is None else {"CUDA_VISIBLE_DEVICES": setting}) == expected


def test_uuids_with_slashes_are_leased_too(tmp_path: Path) -> None:
    with GpuPool(("MIG-77/1/0",), tmp_path).lease(1, timeout_s=0) as lease:
        assert lease.env == {"CUDA_VISIBLE_DEVICES": "MIG-77/1/0"}


def test_a_machine_without_gpus_has_an_empty_pool() -> None:
    with pytest.raises(UnavailableError, match="2 GPUs needed, 0 visible: 2 missing"), gpu_pool(0, {}).lease(2, 0):
        pass
