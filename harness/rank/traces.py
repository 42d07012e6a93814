"""What a rank can still tell of itself when it hangs, gives up or is ended: its stacks and its flight record.

The stacks are written by faulthandler inside a signal handler in C, so that a rank tells them also while it is blocked
in a collective, or while some C code keeps the interpreter locked. A stopped process (SIGSTOP) runs no handler until it
is continued, which whoever asks has to do.

The flight record is torch's own ring buffer of collectives. Beside what harness.rank.collectives writes down at issue
it knows which of them have come to an end, well or not. NCCL always fills it, gloo (2.13) where TORCH_FR_BUFFER_SIZE
asks for it. It is fetched in Python code: when a collective raises, which is how a rank that waits gives up, and on
demand where the main thread comes to run Python code again.
"""

from __future__ import annotations

import faulthandler
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

from harness.wire import STACKS_SIGNAL, flight_path, output_path

# Kept open for the life of the process: faulthandler writes to them from signal handlers.
_kept: list[Any] = []


def prepare(run_dir: Path, rank: int, restart: int) -> None:
    """Stacks on a fatal signal, on SIGTERM, and on STACKS_SIGNAL with the flight record.

    The dump on SIGTERM, made in the handler even while the rank is blocked in a collective, is also the witness that
    the launcher ended this rank: a rank that left no last word and no such dump ended otherwise.
    """
    stacks = output_path(run_dir, rank, restart, "stacks").open("a")
    ended = output_path(run_dir, rank, restart, "sigterm").open("a")
    _kept.extend((stacks, ended))
    faulthandler.enable(stacks, all_threads=True)
    flight = flight_path(run_dir, rank, restart)
    signal.signal(STACKS_SIGNAL, lambda _number, _frame: write_flight_record(flight))
    faulthandler.register(STACKS_SIGNAL, stacks, all_threads=True, chain=True)  # chain: the handler above comes next
    faulthandler.register(signal.SIGTERM, ended, all_threads=True, chain=True)


def write_flight_record(path: Path) -> None:
    """Write the flight record, if this torch keeps one and there is anything in it. Never raises."""
    from torch._C import _distributed_c10d as c10d

    with suppress(Exception):  # a name of torch's own that other versions may lack, and a disk that may be full
        encoded: bytes = c10d._dump_fr_trace_json(True, False)  # type: ignore[attr-defined]
        if b'"entries"' in encoded:
            temporary = path.with_name(f".{path.name}.{os.getpid()}")
            temporary.write_bytes(encoded)
            temporary.replace(path)  # in one step: whoever asked reads it as soon as it is there
