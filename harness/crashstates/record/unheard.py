"""System calls for which a process that strace follows need not stop: they say nothing of files.

strace stops a process twice at every call, also at those that it does not write down: some 30 us each, and the threads
of a process group make thousands while a rank loads. A filter in the kernel (seccomp) lets these few pass; whatever
else a process asks, strace sees as before. strace can set one itself, but only for what it has started, and ranks are
forked by others: it gets along with one that it finds, once it was told to expect some (``attach``).

In the middle of a call that starts a process, or a program, strace is told of that as well. With a filter it takes this
for the end of a call that it is not asked to trace, and misses every other call from then on. So what starts processes
is let pass (strace follows them all the same), and ``execve`` and ``execveat`` must be among the calls to trace.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct

_AUDITED = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}  # AUDIT_ARCH of linux/audit.h
_CALLS: tuple[tuple[str, int | None, int | None], ...] = (  # and their numbers on these machines
    ("brk", 12, 214),
    ("clone", 56, 220),
    ("clone3", 435, 435),
    ("close", 3, 57),
    ("epoll_ctl", 233, 21),
    ("epoll_pwait", 281, 22),
    ("epoll_wait", 232, None),
    ("exit", 60, 93),
    ("exit_group", 231, 94),
    ("fork", 57, None),
    ("futex", 202, 98),
    ("gettid", 186, 178),
    ("madvise", 28, 233),
    ("mprotect", 10, 226),
    ("mremap", 25, 216),
    ("munmap", 11, 215),
    ("poll", 7, None),
    ("ppoll", 271, 73),
    ("recvfrom", 45, 207),
    ("recvmsg", 47, 212),
    ("rt_sigaction", 13, 134),
    ("rt_sigprocmask", 14, 135),
    ("sched_yield", 24, 124),
    ("sendmsg", 46, 211),
    ("sendto", 44, 206),
    ("setsockopt", 54, 208),
    ("vfork", 58, None),
    ("writev", 20, 66),
)
UNHEARD = {
    machine: {name: number for name, *numbers in _CALLS if (number := numbers[place]) is not None}
    for place, machine in enumerate(_AUDITED)
}
"""By machine: these calls, and their numbers."""

_PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 22, 38  # linux/prctl.h
_MODE_FILTER = 2  # linux/seccomp.h, as are the next two
_TRACE, _ALLOW = 0x7FF00000, 0x7FFF0000
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06  # linux/bpf_common.h: BPF_LD | BPF_W | BPF_ABS, ...
_AT_NUMBER, _AT_MACHINE = 0, 4  # in struct seccomp_data


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def let_pass() -> bool:
    """From now on strace is not stopped for ``UNHEARD`` calls of this thread and of all that it starts.

    To be called in a process that strace follows, and that ends before strace does: without strace the filter has
    every other call fail.

    Returns:
        False: nothing was changed, since strace does not get along with it here, or for this machine there is none.
    """
    if platform.machine() not in _AUDITED:
        return False
    pid = os.fork()
    if pid == 0:
        os._exit(0 if _set_filter() and _is_followed() else 1)
    is_fine = os.waitpid(pid, 0)[1] == 0
    return is_fine and _set_filter()


def _is_followed() -> bool:
    try:
        os.stat("/")  # noqa: PTH116  one plain call
    except OSError:  # ENOSYS: nobody takes care of what the filter hands over
        return False
    return True


def _set_filter() -> bool:
    audited, numbers = _AUDITED[platform.machine()], UNHEARD[platform.machine()]
    count = len(numbers)
    # Jumps are counted from the next instruction; the last two hand the call over, and let it pass.
    lines = [(_LOAD, 0, 0, _AT_MACHINE), (_JUMP_IF_EQUAL, 0, count + 1, audited), (_LOAD, 0, 0, _AT_NUMBER)]
    lines += [(_JUMP_IF_EQUAL, count - place, 0, number) for place, number in enumerate(numbers.values())]
    lines += [(_RETURN, 0, 0, _TRACE), (_RETURN, 0, 0, _ALLOW)]
    program = _Program(len(lines), b"".join(struct.pack("=HBBI", *line) for line in lines))
    libc = ctypes.CDLL(None)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):  # else only root may set a filter
        return False
    return bool(libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(program), 0, 0) == 0)
