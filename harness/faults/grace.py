"""The kernel's own alarm clock: SIGKILL after a while, whatever this process is doing by then."""

from __future__ import annotations

import ctypes
import signal
import time

_SIGEV_SIGNAL = 0  # asm-generic/siginfo.h


class _SigEvent(ctypes.Structure):
    """``struct sigevent`` of Linux on 64 bits."""

    _fields_ = (
        ("value", ctypes.c_void_p),
        ("signo", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("rest", ctypes.c_byte * 48),
    )


class _ITimerSpec(ctypes.Structure):
    _fields_ = (
        ("interval_s", ctypes.c_long),
        ("interval_ns", ctypes.c_long),
        ("value_s", ctypes.c_long),
        ("value_ns", ctypes.c_long),
    )


def kill_after(duration_s: float) -> None:
    """Have this process killed in so many seconds. A thread could not: it may never get the interpreter again.

    Raises:
        OSError: the kernel gives no timer.
    """
    librt = ctypes.CDLL("librt.so.1", use_errno=True)  # of glibc before 2.34; later ones keep the name
    timer = ctypes.c_void_p()
    event = _SigEvent(signo=signal.SIGKILL, notify=_SIGEV_SIGNAL)
    seconds, fraction = divmod(duration_s, 1)
    spec = _ITimerSpec(value_s=int(seconds), value_ns=int(fraction * 1e9))
    if librt.timer_create(time.CLOCK_MONOTONIC, ctypes.byref(event), ctypes.byref(timer)) != 0 or (
        librt.timer_settime(timer, 0, ctypes.byref(spec), None) != 0
    ):
        raise OSError(ctypes.get_errno(), "a timer could not be set")
