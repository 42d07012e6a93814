"""Which line of the user's was running when a thread made a call, as the ranks have said."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence

from harness.crashstates.ranks import markers
from harness.crashstates.record.strace import Call, Fd


class Lines:
    """The lines of a whole record.

    Args:
        births: process id -> the call that started it, for processes that begin at their parent's line.
    """

    def __init__(self, calls: Sequence[Call], births: Mapping[int, Call]) -> None:
        self._births = births
        said: defaultdict[int, list[tuple[float, str]]] = defaultdict(list)
        for call in calls:
            mark = marker(call)
            if mark is None:
                continue
            match mark.word:
                case "at":
                    said[call.tid].append((call.t_s, mark.value))
                case "begin" | "ack":
                    said[call.tid].append((call.t_s, ""))
                case "lines":
                    said[call.tid] += markers.lines_said(mark.value)
        # A thread stands still while strace looks at its call: what it noted before is earlier, and what after later.
        self._said = {tid: sorted(lines, key=lambda line: line[0]) for tid, lines in said.items()}

    def of(self, call: Call) -> str | None:
        """``file:line``; None if it is not known."""
        return self._at(call.tid, call.t_s) or None

    def _at(self, tid: int, t_s: float) -> str:
        lines = self._said.get(tid, [])
        if number := bisect_right(lines, t_s, key=lambda line: line[0]):
            return lines[number - 1][1]
        birth = self._births.get(tid)
        return self._at(birth.tid, birth.t_s) if birth is not None else ""


def marker(call: Call) -> markers.Marker | None:
    """What a process said by this call; None if it is no marker."""
    if call.name != "write" or len(call.arguments) < 2:
        return None
    fd, data = call.arguments[:2]
    if not isinstance(fd, Fd) or fd.path != "/dev/null" or not isinstance(data, bytes):
        return None
    return markers.parse(data)
