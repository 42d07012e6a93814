"""Which threads run: those that do, and none that has been joined."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.rank.threads import native_threads

NUM_JOINED = 3000  # of 10,000 the kernel lists one or two for a moment longer
NAME = "of this test"  # others, which earlier tests have left behind, may end meanwhile


@pytest.fixture(autouse=True)
def name() -> Iterator[None]:
    """A thread has the name of the one that starts it."""
    own = Path(f"/proc/self/task/{threading.get_native_id()}/comm")
    before = own.read_text()
    own.write_text(NAME)
    yield
    own.write_text(before)


def test_a_thread_is_named_while_it_runs() -> None:
    is_over = threading.Event()
    thread = threading.Thread(target=is_over.wait, name=NAME)
    thread.start()
    during = native_threads()
    is_over.set()
    thread.join()
    assert during.count(NAME) == 1


def test_a_thread_that_was_joined_does_not_run() -> None:
    libc = ctypes.CDLL(None)
    routine = ctypes.cast(libc.getpid, ctypes.c_void_p)
    for _ in range(NUM_JOINED):
        thread = ctypes.c_ulong()
        assert libc.pthread_create(ctypes.byref(thread), None, routine, None) == 0
        libc.pthread_join(thread, None)
        assert NAME not in native_threads()
