"""trace.json: a run as Chrome trace events, which https://ui.perfetto.dev opens.

A process a rank; in it a thread each for launches, steps, phases, collectives and checkpoints. Flows lead from a fault
to the first error it caused, and from a save to the load that used it.
Format: "Trace Event Format", the Chromium project; timestamps are in microseconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.errors import RecordError
from harness.history import History
from harness.report.timeline import Process, Timeline
from harness.wire import PHASES, Event, Kind

TRACE_JSON = "trace.json"
THREADS = {1: "launch", 2: "steps", 3: "phases", 4: "collectives", 5: "checkpoints", 6: "faults"}
_LAUNCH, _STEPS, _PHASES, _COLLECTIVES, _CHECKPOINTS, _FAULTS = THREADS
_MIN_DUR_US = 1.0  # what has no length cannot carry a flow


def write_trace(history: History, timeline: Timeline, run_dir: Path) -> Path:
    """Write trace.json into ``run_dir``, in one step and in memory of one event; returns its path.

    Raises:
        RecordError: it cannot be written.
    """
    path = run_dir / TRACE_JSON
    half = path.with_name(f"{path.name}.tmp")
    try:
        with half.open("w") as file:
            file.write('{"displayTimeUnit":"ms","otherData":')
            file.write(json.dumps({"name": history.plan.name, "title": history.plan.title}))
            file.write(',"traceEvents":[')
            for number, event in enumerate(trace_events(history, timeline)):
                file.write((",\n" if number else "\n") + json.dumps(event, separators=(",", ":"), default=str))
            file.write("\n]}\n")
        half.replace(path)
    except OSError as error:
        raise RecordError(
            f"{path}: cannot be written ({error.strerror}); free some space or mend its rights"
        ) from error
    return path


def trace_events(history: History, timeline: Timeline) -> Iterator[dict[str, Any]]:
    """The events, those of one thread in order of time."""
    for rank in history.ranks:
        yield _meta(rank, 0, "process_name", name=f"rank {rank}")
        yield _meta(rank, 0, "process_sort_index", sort_index=rank)
        for tid, name in THREADS.items():
            yield _meta(rank, tid, "thread_name", name=name)
            yield _meta(rank, tid, "thread_sort_index", sort_index=tid)
    for process in timeline.processes:
        yield from _of_process(process)
    zero_ns = history.outcome.started_ns
    for event in history.of(Kind.COLLECTIVE):
        yield _instant(event, zero_ns, _COLLECTIVES, str(event.data.get("op")))
    for event in history.of(Kind.EXCEPTION):
        yield _instant(event, zero_ns, _FAULTS, str(event.data.get("type")))
    for event in history.of(Kind.FAULT):
        at_us = (event.t_ns - zero_ns) / 1e3
        name = f"fault: {event.data.get('fault')}"
        yield _slice(event.rank, _FAULTS, name, at_us, _MIN_DUR_US, dict(event.data))
    yield from _checkpoints(history)
    yield from _flows(history)


def _of_process(process: Process) -> Iterator[dict[str, Any]]:
    rank, end_us = process.rank, process.end_s * 1e6
    begin_us = process.begin_s * 1e6
    about = {"steps": process.steps, "replayed": process.replayed, "ended": process.ended or "normally"}
    yield _slice(rank, _LAUNCH, f"launch {process.restart}", begin_us, end_us - begin_us, about)
    phase: tuple[float, str, int] | None = None
    step_us: float | None = None
    for at_s, name, step in process.marks:
        at_us = at_s * 1e6
        if name in PHASES:
            if phase is not None:
                yield _slice(rank, _PHASES, phase[1], phase[0], at_us - phase[0], {"step": phase[2]})
            phase = (at_us, name, step)
            if step_us is None and name == "load_batch":
                step_us = at_us
        elif name == "update":
            again = process.replayed is not None and process.replayed[0] <= step <= process.replayed[1]
            since = begin_us if step_us is None else step_us
            yield _slice(
                rank, _STEPS, f"step {step}{' (again)' if again else ''}", since, at_us - since, {"step": step}
            )
            step_us = at_us
    if phase is not None:
        yield _slice(rank, _PHASES, phase[1], phase[0], end_us - phase[0], {"step": phase[2]})


def _checkpoints(history: History) -> Iterator[dict[str, Any]]:
    zero_ns = history.outcome.started_ns
    begun: dict[tuple[int, int, Any], Event] = {}
    for event in history.of((Kind.SAVE_START, Kind.SAVE_END, Kind.SAVE_ERROR)):
        key = (event.rank, event.restart, event.data.get("path"))
        if event.kind == Kind.SAVE_START:
            begun[key] = event
        elif key in begun:
            start = begun.pop(key)
            name = "save" if event.kind == Kind.SAVE_END else "save fails"
            at_us, dur_us = (start.t_ns - zero_ns) / 1e3, (event.t_ns - start.t_ns) / 1e3
            yield _slice(event.rank, _CHECKPOINTS, name, at_us, dur_us, {"step": start.step, **event.data})
    for event in history.of(Kind.LOAD):
        about = {name: value for name, value in event.data.items() if name != "candidates"}
        yield _slice(event.rank, _CHECKPOINTS, "load", (event.t_ns - zero_ns) / 1e3, _MIN_DUR_US, about)


def _flows(history: History) -> Iterator[dict[str, Any]]:
    number = 0
    saved: dict[Any, Event] = {}
    fault: Event | None = None
    zero_ns = history.outcome.started_ns
    for event in history.of((Kind.SAVE_END, Kind.LOAD, Kind.FAULT, Kind.EXCEPTION)):
        start: Event | None = None
        threads = (_CHECKPOINTS, _CHECKPOINTS)
        if event.kind == Kind.SAVE_END:
            saved.setdefault(event.data.get("path"), event)
        elif event.kind == Kind.FAULT:
            fault = event
        elif event.kind == Kind.LOAD:
            start = saved.get(event.data.get("path"))
        elif fault is not None:
            start, fault, threads = fault, None, (_FAULTS, _FAULTS)
        if start is not None:
            number += 1
            name = "resumed from" if event.kind == Kind.LOAD else "seen as"
            for phase, end, tid in (("s", start, threads[0]), ("f", event, threads[1])):
                about = {"name": name, "cat": "flow", "id": number, "pid": end.rank, "tid": tid}
                # The end of a save still lies in its slice, its first instant does not lie in the load's.
                shift_us = -0.5 if end.kind == Kind.SAVE_END else 0.5
                yield {"ph": phase, "bp": "e", **about, "ts": (end.t_ns - zero_ns) / 1e3 + shift_us}


def _meta(pid: int, tid: int, what: str, **args: Any) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": args}


def _slice(pid: int, tid: int, name: str, ts: float, dur: float, args: dict[str, Any]) -> dict[str, Any]:
    times = {"ts": round(ts, 3), "dur": round(max(dur, 0.0), 3)}
    return {"ph": "X", "name": name, "cat": THREADS[tid], "pid": pid, "tid": tid, **times, "args": args}


def _instant(event: Event, zero_ns: int, tid: int, name: str) -> dict[str, Any]:
    args = {"step": event.step, "phase": event.phase, "line": event.where, **event.data}
    times = {"ts": (event.t_ns - zero_ns) / 1e3}
    return {
        "ph": "i",
        "s": "t",
        "name": name,
        "cat": THREADS[tid],
        "pid": event.rank,
        "tid": tid,
        **times,
        "args": args,
    }
