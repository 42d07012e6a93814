"""What a load looked at, from its system calls: the questions whose answers decide what it does.

A reader finds out about a state by system calls alone. Each call that was seen becomes a question whose answer
determines the call's result; where that would be hard to say, the whole state is asked for. So a reader that gets the
same answers makes the same calls and returns the same, whatever language it is written in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from harness.crashstates.read.questions import (
    MAX_LINKS,
    Below,
    Content,
    Entry,
    Everything,
    Name,
    Names,
    Opened,
    Order,
    Outside,
    Question,
    Target,
)
from harness.crashstates.record.strace import Call, Fd
from harness.crashstates.tree import Link


def _each(names: str) -> list[str]:
    return names.split()


_FDCWD = -100
_WRITE_FLAGS = _each("O_WRONLY O_RDWR O_TRUNC O_CREAT")
_WAYS_OF_PROC = frozenset(_each("fd cwd root map_files"))  # of a process's, into the directory by no path at all

# call -> pairs of (index of the directory descriptor, or None; index of the path)
_PATHS: dict[str, tuple[tuple[int | None, int], ...]] = {
    **dict.fromkeys(_each("open creat stat lstat access readlink execve chdir rmdir unlink mkdir mknod"), ((None, 0),)),
    **dict.fromkeys(_each("truncate chmod chown lchown utime utimes getxattr lgetxattr listxattr"), ((None, 0),)),
    **dict.fromkeys(_each("llistxattr setxattr lsetxattr removexattr lremovexattr"), ((None, 0),)),
    **dict.fromkeys(_each("openat openat2 newfstatat fstatat64 statx faccessat faccessat2 readlinkat"), ((0, 1),)),
    **dict.fromkeys(_each("execveat unlinkat mkdirat mknodat fchmodat fchmodat2 fchownat"), ((0, 1),)),
    **dict.fromkeys(_each("futimesat utimensat"), ((0, 1),)),
    "rename": ((None, 0), (None, 1)),
    "renameat": ((0, 1), (2, 3)),
    "renameat2": ((0, 1), (2, 3)),
}
_OPENS = frozenset(_each("open openat openat2 creat truncate"))
_STATUS = frozenset(_each("stat lstat newfstatat fstatat64 statx"))
_RUNS = frozenset(_each("execve execveat"))
# call -> index of the descriptor of which it tells what is in the file. To have it open tells nothing of that.
_READS = {
    **dict.fromkeys(_each("read pread64 readv preadv preadv2 splice copy_file_range lseek ioctl fallocate"), 0),
    "sendfile": 1,
    "mmap": 4,
}
_IS_NO_TERMINAL = "ENOTTY"  # says ioctl of every file
_MAKES = frozenset(_each("mkdir mkdirat mknod mknodat creat truncate"))
_RENAMES = frozenset(_each("rename renameat renameat2"))
_LISTS = frozenset(_each("getdents getdents64"))
# Of the name itself, also if it is a link.
_NAMES = frozenset(_each("lstat readlink readlinkat rmdir unlink unlinkat mkdir mkdirat mknod mknodat lchown")) | {
    *_each("lgetxattr llistxattr lsetxattr lremovexattr")
}
# What they do to a tree, or tell of it, is not followed: of paths below the root they ask for everything, ...
_WHOLE_PATHS: dict[str, tuple[tuple[int | None, int], ...]] = {
    "statfs": ((None, 0),),
    "inotify_add_watch": ((None, 1),),
    "name_to_handle_at": ((0, 1),),
    "link": ((None, 0), (None, 1)),
    "linkat": ((0, 1), (2, 3)),
}
# ... and these always.
_WHOLE = frozenset(_each("symlink symlinkat fanotify_mark open_by_handle_at io_uring_setup io_setup chroot")) | {
    *_each("pivot_root mount umount2 open_tree move_mount")
}
LOOKING = (*_PATHS, *_LISTS, *_READS, *_WHOLE_PATHS, *_WHOLE, *_each("fchdir fstat fstatfs write"))
"""The calls to trace of a reader; write: for its markers."""


@dataclass
class Looks:
    """What was found in the calls of one load.

    Attributes:
        questions: in the order in which they were asked, each once.
        made: (thread, path) of files that were not there before: what is in them is the reader's own.
        written: what below the root may have been written to, relative to it.
        outside_seen, outside_written: absolute paths elsewhere.
    """

    questions: dict[Question, None] = field(default_factory=dict)
    made: set[tuple[int, str]] = field(default_factory=set)
    written: set[str] = field(default_factory=set)
    outside_seen: set[str] = field(default_factory=set)
    outside_written: set[str] = field(default_factory=set)


class Looker:
    """Turns calls into looks.

    Args:
        root: the real, absolute path of the checkpoint directory.
        cwd: where the ranks are at first. Which process is where later is not followed: a relative path is taken to
            be any of those that they have been at.
    """

    def __init__(self, root: str, cwd: str, outside: Outside) -> None:
        self._root = root
        self._below = f"{root}/"
        self._cwds = {cwd: None}
        self._outside = outside

    def looks(self, calls: Iterable[Call], rank_tids: Sequence[int]) -> Looks:
        """What ``calls`` looked at; those of each thread together, ranks' main threads first: that repeats best."""
        by_tid: dict[int, list[Call]] = {tid: [] for tid in rank_tids}
        for call in calls:
            self._note_directory(call)
            by_tid.setdefault(call.tid, []).append(call)
        found = Looks()
        for tid in by_tid:
            for call in by_tid[tid]:
                found.questions |= dict.fromkeys(self._questions(call, found))
        timed = dict.fromkeys(q.path for q in found.questions if isinstance(q, Name))
        if len(timed) > 1:
            found.questions[Order("\0".join(timed))] = None
        return found

    def _note_directory(self, call: Call) -> None:
        if call.name == "fchdir" and call.arguments and isinstance(call.arguments[0], Fd):
            self._cwds[call.arguments[0].path] = None
        elif call.name == "chdir":
            for path in self._absolute(call, None, 0):
                self._cwds[path] = None

    def _questions(self, call: Call, found: Looks) -> Iterator[Question]:
        name, arguments = call.name, call.arguments
        if name in _WHOLE or not arguments:  # without arguments: it had begun before strace came
            yield Everything("")
        elif name in _LISTS and isinstance(arguments[0], Fd):
            yield from self._of_fd(arguments[0], Names)
        elif name in ("fstat", "fchdir", "fstatfs") and isinstance(arguments[0], Fd):
            yield from self._of_fd(arguments[0], Everything if name == "fstatfs" else Target)
        elif name in _READS:
            fd = arguments[_READS[name]] if len(arguments) > _READS[name] else None
            if isinstance(fd, Fd) and call.error != _IS_NO_TERMINAL:
                yield from self._of_fd(fd, Content)
        elif name in _WHOLE_PATHS:
            if any(self._enter(p) is not None for at in _WHOLE_PATHS[name] for p in self._absolute(call, *at)):
                yield Everything("")
        elif name in _PATHS:
            for directory, index in _PATHS[name]:
                yield from self._of_path(call, directory, index, found)

    def _of_fd(self, fd: Fd, kind: type[Question]) -> Iterator[Question]:
        if fd.path == self._root or fd.path.startswith(self._below):
            yield Everything("") if fd.deleted else kind(fd.path[len(self._below) :])

    def _of_path(self, call: Call, directory: int | None, index: int, found: Looks) -> Iterator[Question]:
        flags = " ".join(str(argument) for argument in call.arguments[index + 1 :] if isinstance(argument, str | dict))
        if call.arguments[index] == b"":
            if "AT_EMPTY_PATH" in flags and directory is not None and isinstance(fd := call.arguments[directory], Fd):
                yield from self._of_fd(fd, Content if call.name in _RUNS else Target)
            return
        is_written = call.name in _MAKES or (call.name in _OPENS and any(flag in flags for flag in _WRITE_FLAGS))
        is_made = "O_CREAT" in flags and "O_EXCL" in flags and call.error is None
        paths = self._absolute(call, directory, index)
        for path in paths:
            inside = self._enter(path)
            if inside is None:
                yield from self._of_outside(call, path, flags, is_written, found)
            else:
                if is_written:
                    found.written.add(inside)
                if is_made and len(paths) == 1:
                    found.made.add((call.tid, inside))
                if call.name not in _RENAMES:
                    yield from self._of_inside(call, inside, flags)
                    continue
                yield Entry(inside)
                if "RENAME_EXCHANGE" not in flags and (directory, index) != _PATHS[call.name][0]:
                    yield Names(inside)
                elif (call.tid, inside) not in found.made:
                    yield Below(inside)

    @staticmethod
    def _of_inside(call: Call, path: str, flags: str) -> Iterator[Question]:
        is_name = call.name in _NAMES or "AT_SYMLINK_NOFOLLOW" in flags
        if call.name in _STATUS:
            yield Name(path) if is_name else Target(path)
        elif is_name:
            yield Entry(path)
            if call.name == "rmdir" or "AT_REMOVEDIR" in flags:
                yield Names(path)
        else:
            if "O_NOFOLLOW" in flags:
                yield Entry(path)
            yield Content(path) if call.name in _RUNS else Opened(path)

    def _of_outside(self, call: Call, path: str, flags: str, is_written: bool, found: Looks) -> Iterator[Question]:
        parts = path.split("/")
        if path.startswith(("/dev/fd/", "/dev/std")):
            yield Everything("")
        elif path.startswith("/proc/"):
            if _WAYS_OF_PROC.intersection(parts[3:-1]) or parts[-1] in ("cwd", "root"):
                yield Everything("")
        elif path.startswith("/dev/shm/") or not path.startswith(("/dev/", "/sys/")):
            if call.name in _RENAMES and self._root.startswith(f"{path}/"):
                yield Everything("")
            if (is_written or call.name in _RENAMES) and call.error is None:
                found.outside_written.add(path)
            if not is_written or "O_WRONLY" not in flags:
                found.outside_seen.add(path)

    def _absolute(self, call: Call, directory: int | None, index: int) -> list[str]:
        """The absolute paths that an argument may mean."""
        if index >= len(call.arguments) or not isinstance(raw := call.arguments[index], bytes):
            return []
        path = raw.decode(errors="surrogateescape")
        if path.startswith("/"):
            return [path]
        base = None if directory is None else call.arguments[directory]
        if isinstance(base, Fd):
            if base.number == _FDCWD:
                self._cwds[base.path] = None
            return [f"{base.path}/{path}"]
        return [f"{cwd}/{path}" for cwd in self._cwds]

    def _enter(self, path: str) -> str | None:
        """The part of ``path`` that is walked once it has come to the root; None if it does not."""
        if path.startswith(self._below):
            return path[len(self._below) :]
        here, names, num_links = "", path.split("/")[::-1], 0
        while names:
            name = names.pop()
            if name in ("", "."):
                continue
            if name == "..":
                here = here.rpartition("/")[0]
                continue
            here = f"{here}/{name}"
            if here == self._root:
                return "/".join(names[::-1])
            if isinstance(node := self._outside.at(here), Link) and num_links < MAX_LINKS:
                num_links += 1
                here = "" if node.text.startswith("/") else here.rpartition("/")[0]
                names += node.text.split("/")[::-1]
        return None
