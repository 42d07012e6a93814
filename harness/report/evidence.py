"""What a run directory has of each launch that came to a bad end: last collectives, stacks, last words."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from harness.checks.ends import End, ends_of
from harness.checks.hang import Hang, hang_of
from harness.checks.records import failed_restarts
from harness.checks.sent import describe
from harness.checks.stacks import Dump, dumps_of
from harness.history import History
from harness.report.words import signal_name
from harness.wire import Event, Kind, output_path

LAST_COLLECTIVES = 8
MAX_TEXT_CHARS = 6_000  # of stacks or of output, from the end
MAX_RANKS = 128  # of one launch: a page of more is read by nobody


@dataclass(frozen=True, kw_only=True)
class Witness:
    """One process of a launch that failed.

    Attributes:
        ended: how, in words.
        last: the last thing it is seen doing, in words.
        calls: how many collectives it sent in all; ``collectives`` are the last of them.
        flight: the last collectives by torch's own record, in words; empty if it left none.
        stacks: (what they are, the stacks) of each moment at which it wrote some; a long one is cut at its beginning.
        stderr: the end of this file; empty if there is nothing in it.
    """

    rank: int
    ended: str
    last: str
    where: str
    calls: int
    collectives: tuple[str, ...]
    flight: tuple[str, ...]
    stacks: tuple[tuple[str, str], ...]
    stderr: str


@dataclass(frozen=True, kw_only=True)
class Failure:
    """One launch that came to a bad end; ``hang`` says who is ahead, behind or absent, and where each rank stood."""

    restart: int
    hang: Hang
    witnesses: tuple[Witness, ...]
    num_left_out: int


def failures(history: History, run_dir: Path) -> list[Failure]:
    """Of each launch that failed, by restart count."""
    return [_failure(history, run_dir, restart) for restart in failed_restarts(history)]


def _failure(history: History, run_dir: Path, restart: int) -> Failure:
    ends = ends_of(history, restart)
    ranks = history.ranks[:MAX_RANKS]
    return Failure(
        restart=restart,
        hang=hang_of(history, restart),
        witnesses=tuple(_witness(history, run_dir, ends[rank], restart) for rank in ranks),
        num_left_out=max(0, len(history.ranks) - MAX_RANKS),
    )


def _witness(history: History, run_dir: Path, end: End, restart: int) -> Witness:
    rank = end.rank
    sent = history.of(Kind.COLLECTIVE, rank=rank, restart=restart)
    code = "" if end.code is None else f"exit code {end.code}" if end.code >= 0 else signal_name(end.code)
    signal = end.signal or ""
    word = str(end.word.data.get("type", "")) if end.word is not None and end.way == "exception" else ""
    last = end.last
    flight = history.flights.get((rank, restart))
    return Witness(
        rank=rank,
        ended=", ".join(dict.fromkeys(filter(None, (end.way, word, signal, code)))),
        last="no record" if last is None else f"{last.kind} in {last.phase} of step {last.step}",
        where="" if end.at is None else end.at.where,
        calls=len(sent),
        collectives=tuple(_told(event) for event in sent[-LAST_COLLECTIVES:]),
        flight=() if flight is None else flight.last,
        stacks=tuple(_titled(dump) for dump in dumps_of(history.stacks.get((rank, restart), ""))),
        stderr=_end_of_text(_read(output_path(run_dir, rank, restart, "stderr"))),
    )


def _told(event: Event) -> str:
    mark = event.data.get("faulted")
    return f"#{event.data.get('call')}  {describe(event)}" + (f"  [{mark} by the fault]" if mark else "")


def _titled(dump: Dump) -> tuple[str, str]:
    """The main thread is the last of a dump: where one is too long, its end says more."""
    if not dump.is_ended:
        return "Its stacks", _end_of_text(dump.text)
    where = "" if dump.is_in_script else ": it did not run the script just then"
    return f"Its stacks when the launcher ended it{where}", _end_of_text(dump.text)


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 4 * MAX_TEXT_CHARS))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def _end_of_text(text: str) -> str:
    text = text.strip()
    return text if len(text) <= MAX_TEXT_CHARS else f"[...]\n{text[-MAX_TEXT_CHARS:]}"
