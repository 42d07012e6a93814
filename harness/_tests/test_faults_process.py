"""Faults of a process that do not end it at once: hangs, memory, stragglers, a grace period."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from harness._tests.launched import Run
from harness.checks.diagnosis import diagnose
from harness.faults import At, Fault
from harness.faults.base import effects_of
from harness.faults.hang import Hang
from harness.faults.kill import SLACK_S, Kill
from harness.faults.out_of_memory import OutOfMemory
from harness.faults.straggle import Straggle
from harness.wire import Event, Kind

SETTLE_S = 20.0

# Counts in a second Python thread; dumps its stacks on SIGUSR2 as a rank does, while the main thread fires.
PROGRAM = """
import faulthandler, json, os, signal, sys, threading
from harness.faults import load_fault
fault = load_fault(json.loads(sys.argv[1]))
faulthandler.register(signal.SIGUSR2)
{before}
count, counting = [0], threading.Event()
def work():
    while True:
        count[0] += 1
        if count[0] == 1000:
            counting.set()
        if count[0] % 100000 == 0:
            os.write(1, b".")  # not print: its lock, held by a daemon thread at the interpreter's end, is fatal
threading.Thread(target=work, daemon=True).start()
counting.wait()
print("ready", flush=True)
fault.fire()
print("went on", flush=True)
{after}
"""


def start(fault: Fault, *, before: str = "", after: str = "", stderr: int | None = None) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PROGRAM.format(before=before, after=after), json.dumps(dataclasses.asdict(fault))]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True)
    assert process.stdout is not None
    while process.stdout.readline().strip(".\n") != "ready":
        assert process.poll() is None
    return process


def state(process: subprocess.Popen[str]) -> str:
    """The state letter of the main thread in /proc, once it is none that a running interpreter passes through."""
    return Path(f"/proc/{process.pid}/task/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]


def until_state(process: subprocess.Popen[str], wanted: str) -> None:
    ends = time.monotonic() + SETTLE_S
    while state(process) != wanted:
        assert time.monotonic() < ends, f"it is in state {state(process)}, not {wanted}"
        time.sleep(0.01)


def test_a_stopped_process_stands_still_until_it_is_continued_or_killed() -> None:
    with start(Hang(rank=0, how="stopped")) as process:
        until_state(process, "T")
        process.terminate()
        until_state(process, "T")  # SIGTERM waits
        process.kill()
        assert process.wait(SETTLE_S) == -signal.SIGKILL


@pytest.mark.parametrize("how", ["loop", "lock"])
def test_a_hanging_process_tells_its_stacks_and_ends_by_sigterm(how: Any, tmp_path: Path) -> None:
    stacks = tmp_path / "stacks"
    with stacks.open("w") as file, start(Hang(rank=0, how=how), stderr=file.fileno()) as process:
        ends = time.monotonic() + SETTLE_S
        while "hang.py" not in stacks.read_text():  # asked too early, it is not there yet
            assert time.monotonic() < ends
            process.send_signal(signal.SIGUSR2)
            time.sleep(0.05)
        process.terminate()
        out, _ = process.communicate(timeout=SETTLE_S)
        assert process.returncode == -signal.SIGTERM
    assert "went on" not in out


def test_an_endless_loop_leaves_the_processors_to_others() -> None:
    with start(Hang(rank=0, how="loop")) as process:
        ends = time.monotonic() + SETTLE_S
        while os.getpriority(os.PRIO_PROCESS, process.pid) != 19:
            assert time.monotonic() < ends
            time.sleep(0.01)
        process.kill()


def test_a_lock_in_c_stops_the_other_threads_of_python_too() -> None:
    def cpu_ticks() -> int:
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    with start(Hang(rank=0, how="lock")) as process:
        until_state(process, "S")
        before, ticks_s = cpu_ticks(), os.sysconf("SC_CLK_TCK")
        time.sleep(1.0)
        assert cpu_ticks() - before < 0.1 * ticks_s  # the counting thread alone would use all of it
        process.kill()


def test_memory_runs_out_is_free_again_and_the_limit_stays() -> None:
    after = """
try:
    bytearray(200 << 20)
except MemoryError:
    print("limited", bytearray(32 << 20)[:0])
"""
    before = """
class Caught:
    def fire(self):
        try:
            real.fire()
        except MemoryError as error:
            print(error)
real, fault = fault, Caught()
"""
    with start(OutOfMemory(rank=0), before=before, after=after) as process:
        out, _ = process.communicate(timeout=SETTLE_S)
    assert "RLIMIT_AS leaves 134217728 bytes to this rank; " in out
    assert "limited" in out


GRACE = {
    "a handler that never returns": "signal.signal(signal.SIGTERM, lambda *_: [0 for _ in iter(int, 1)])",
    "a handler that waits in C, interpreter locked": (
        "from harness.faults.hang import Hang\nlock = Hang(rank=0, how='lock').fire\n"
        "signal.signal(signal.SIGTERM, lambda *_: lock())"
    ),
    "a script that ignores it and never ends": "signal.signal(signal.SIGTERM, signal.SIG_IGN)",
}


@pytest.mark.parametrize("before", GRACE.values(), ids=GRACE)
def test_after_the_grace_period_comes_sigkill(before: str) -> None:
    started_s = time.monotonic()
    fault = Kill(rank=0, signal="SIGTERM", grace_s=0.3)
    with start(fault, before=before, after="while True: pass") as process:
        assert process.wait(SETTLE_S) == -signal.SIGKILL
    assert time.monotonic() - started_s >= 0.3


def test_a_script_that_does_not_handle_the_signal_ends_at_once() -> None:
    with start(Kill(rank=0, signal="SIGTERM", grace_s=60.0)) as process:
        assert process.wait(SETTLE_S) == -signal.SIGTERM


def test_a_script_may_leave_within_its_grace_period() -> None:
    with start(
        Kill(rank=0, signal="SIGTERM", grace_s=60.0), before="signal.signal(15, lambda *_: sys.exit(143))"
    ) as it:
        assert it.wait(SETTLE_S) == 143


# -- proofs --------------------------------------------------------------------------------------------------------


def event(kind: Kind, *, seq: int = 2, step: int = 3, phase: str = "forward", t_s: float = 0.0, **data: Any) -> Event:
    return Event(rank=1, restart=0, seq=seq, t_ns=int(t_s * 1e9), kind=kind, step=step, phase=phase, data=data)


FIRED = event(Kind.FAULT, seq=1, index=4, fault="any", effect="in words")
SLOW = Straggle(rank=1, duration_s=0.5, updates=3)
EVICTED = Kill(rank=1, signal="SIGTERM", grace_s=2.0)


def waited(step: int, waited_s: float = 0.51) -> Event:
    return event(Kind.EFFECT, step=step, index=4, fault="straggle", waited_s=waited_s)


def entered(step: int, phase: str = "forward") -> Event:
    return event(Kind.PHASE, step=step, phase=phase)


THREE_WAITS = [waited(3), entered(4), waited(4), entered(5), waited(5), entered(6)]
PROVED: dict[str, tuple[Fault, list[Event]]] = {
    "hung and silent": (Hang(rank=1), []),
    "no memory, and the script ended": (OutOfMemory(rank=1), [event(Kind.EXCEPTION, type="MemoryError", message="")]),
    "no memory, and the save was given up": (
        OutOfMemory(rank=1),
        [event(Kind.SAVE_ERROR, error="MemoryError: RLIMIT_AS leaves 134217728 bytes to this rank; 5 were got")],
    ),
    "slow in three updates": (SLOW, THREE_WAITS),
    "ended while it waited for the first time": (SLOW, []),
    "ended while it waited again": (SLOW, [waited(3), entered(4)]),
    "told to end, and silent": (EVICTED, []),
    "told to end, saved and left": (
        EVICTED, [event(Kind.SAVE_END, t_s=1.0, path="p"), event(Kind.EXIT, t_s=1.1, code=143)]),
}  # fmt: skip


@pytest.mark.parametrize(("fault", "after"), PROVED.values(), ids=PROVED)
def test_the_records_prove_it(fault: Fault, after: list[Event]) -> None:
    assert fault.missing_effect(FIRED, after) is None


UNPROVED: dict[str, tuple[Fault, list[Event], str]] = {
    "hung, but it went on": (Hang(rank=1), [event(Kind.UPDATE)], "the process went on after hang: update"),
    "no memory, but caught": (OutOfMemory(rank=1), [event(Kind.UPDATE)], "was it caught there?"),
    "no memory, but another error": (
        OutOfMemory(rank=1), [event(Kind.EXCEPTION, type="ValueError", message="x")], "no MemoryError left"),
    "no memory, but the save failed of something else": (
        OutOfMemory(rank=1), [event(Kind.SAVE_ERROR, error="MemoryError: x")], "no MemoryError left"),
    "slow in two of three updates": (SLOW, THREE_WAITS[:3], "update 5 should be slow as well, and it was not made"),
    "slow, but not in the second": (
        SLOW, [waited(3), entered(4), entered(5), waited(5)], "went on in update 4 without waiting"),
    "slow, but not enough": (SLOW, [waited(3, 0.2), *THREE_WAITS[1:]], "waited 0.200 s in update 3, not 0.5"),
    "slow, but not at all": (SLOW, [event(Kind.UPDATE)], "went on in update 3 without waiting"),
    "told to end, and still there": (
        EVICTED, [event(Kind.UPDATE, t_s=2.1 + SLACK_S)], "still worked 7.1 s after SIGTERM: update"),
    "told to end, but done before": (EVICTED, [event(Kind.EXIT, t_s=1.0, code=0)], "came to its end in the grace"),
}  # fmt: skip


@pytest.mark.parametrize(("fault", "after", "said"), UNPROVED.values(), ids=UNPROVED)
def test_the_records_do_not_prove_it(fault: Fault, after: list[Event], said: str) -> None:
    missing = fault.missing_effect(FIRED, after)
    assert missing is not None
    assert said in missing


# -- in real ranks -------------------------------------------------------------------------------------------------

UPDATES = """
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
del model
dist.destroy_process_group()
"""


def test_a_straggler_waits_in_each_of_its_updates_and_in_no_other(run: Run) -> None:
    fault = Straggle(rank=1, at=At(step=2, phase="backward"), duration_s=0.01, updates=2)
    history = run(UPDATES, fault)
    (fired,) = history.of(Kind.FAULT)
    waits = effects_of(fired, history.of(rank=1, restart=0))
    assert [(e.step, e.phase) for e in waits] == [(2, "backward"), (3, "backward")]
    assert all(e.data["waited_s"] >= 0.01 for e in waits)
    assert history.outcome.exit_code == 0


@pytest.mark.parametrize("phase", ["forward", "optimizer_step"])
def test_a_rank_that_hangs_is_named_with_the_update_that_it_hangs_in(run: Run, phase: Any) -> None:
    history = run(UPDATES, Hang(rank=1, at=At(step=2, phase=phase)), collective_timeout_s=1.0)
    (cause,) = diagnose(history)
    assert (cause.how, cause.rank, cause.step, cause.phase) == ("hang", 1, 2, phase)
