"""Prepare one rank, then run the training script as ``__main__``, unmodified.

python -m harness.rank.main SCRIPT [ARGS...]     cold: started by torchrun
run(script, args)                                warm: called in the forked process
"""

from __future__ import annotations

import json
import os
import platform
import runpy
import signal
import socket
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from harness.faults import load_fault
from harness.rank import host_names, lifeline, shared_memory, traces
from harness.rank.recorder import Recorder
from harness.rank.sources import sources
from harness.rank.threads import native_threads
from harness.wire import PLAN_JSON, RUN_DIR_ENV, Kind, events_path, flight_path, output_path, rank_dir

if TYPE_CHECKING:  # at run time these wait until output and signals are in place: importing torch may fail, or crash
    from harness.rank.steps import Steps
    from harness.rank.triggers import Triggers

_COMMUNICATION = ("/torch/distributed/", "/torch/nn/parallel/distributed.py")

_kept: list[int] = []  # descriptors, open for the life of the process


def run(script: str, args: list[str]) -> int:
    """Run ``script`` as this rank; returns the exit code to leave with."""
    run_dir = Path(os.environ[RUN_DIR_ENV])
    rank, restart = int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    lifeline.die_with_parent(os.getppid())
    _kept.append(lifeline.hold_alive(run_dir))
    rank_dir(run_dir, rank).mkdir(exist_ok=True)
    _redirect_output(run_dir, rank, restart)
    _prepare_signals()
    traces.prepare(run_dir, rank, restart)
    recorder = Recorder(events_path(run_dir, rank, restart))
    _record_start(recorder, script)
    host_names.quote_addresses()
    shared_memory.watch(recorder)
    steps, triggers = _install(recorder, run_dir, rank, restart)
    from harness.rank import collectives

    rank_pid = os.getpid()
    code = _run_script(recorder, steps, triggers, script, args, flight_path(run_dir, rank, restart))
    if os.getpid() != rank_pid:
        return code  # a child that the script forked, and that left it as the rank does: it is not the rank
    state = steps.final_state()
    if code == 0 and native_threads():  # after an error its threads may still wait for peers
        collectives.release()
    recorder.emit(
        Kind.EXIT,
        code=code,
        **state,
        returned=collectives.returned(),
        threads=native_threads(),
        torn_down=steps.is_torn_down,
        sources=sources(),
    )
    recorder.trim()
    return code


def _redirect_output(run_dir: Path, rank: int, restart: int) -> None:
    for stream, fd in (("stdout", 1), ("stderr", 2)):
        path = output_path(run_dir, rank, restart, stream)  # type: ignore[arg-type]
        opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(opened, fd)
        os.close(opened)
    # A killed rank should not take its last words with it.
    sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)


def _prepare_signals() -> None:
    """Default dispositions: a forked rank has the agent's."""
    for name in ("SIGTERM", "SIGHUP", "SIGQUIT"):
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _record_start(recorder: Recorder, script: str) -> None:
    import torch

    recorder.emit(
        Kind.START,
        pid=os.getpid(),
        local_rank=int(os.environ["LOCAL_RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]),
        local_world_size=int(os.environ["LOCAL_WORLD_SIZE"]),
        host=socket.gethostname(),
        master_addr=os.environ["MASTER_ADDR"],
        master_port=int(os.environ["MASTER_PORT"]),
        device=os.environ.get("CUDA_VISIBLE_DEVICES", ""),
        script=script,
        python=platform.python_version(),
        torch=torch.__version__,
    )


def _install(recorder: Recorder, run_dir: Path, rank: int, restart: int) -> tuple[Steps, Triggers]:
    # torch.distributed.nn first: imported later, its default arguments pin the process group, so that
    # destroy_process_group() cannot end gloo's threads, and one of them may abort the exiting interpreter. Imported
    # here, it makes every script immune; CHAOS_SAFE_TEARDOWN=0 leaves a script as it is.
    safe_teardown = os.environ.get("CHAOS_SAFE_TEARDOWN", "1") != "0"
    if safe_teardown:
        import torch.distributed.nn  # noqa: F401

    from harness.rank import bad_work, collectives, loader, storage
    from harness.rank.gradients import Gradients
    from harness.rank.resume import EarlierLaunches
    from harness.rank.steps import Steps
    from harness.rank.triggers import Triggers

    plan = json.loads((run_dir / PLAN_JSON).read_text())
    faults = [load_fault(raw) for raw in plan["faults"]]
    triggers = Triggers(
        faults,
        recorder,
        run_dir,
        rank=rank,
        world_size=int(os.environ["WORLD_SIZE"]),
        restart=restart,
        meeting_s=plan["collective_timeout_s"] / 2,  # the other ranks wait for these, and must not give up first
    )
    earlier = EarlierLaunches(run_dir, rank, restart, has_start=plan["start_from"] is not None)
    gradients = None
    if (gradient := plan["gradient"]) is not None:
        gradients = Gradients(recorder, gradient["losses"], tuple(gradient["updates"] or ()))
    steps = Steps(recorder, earlier.step_of_state, gradients)
    if triggers.has_faults:
        recorder.on_phase = triggers.at_phase
    collectives.install(recorder, triggers, timeout_s=plan["collective_timeout_s"], safe_teardown=safe_teardown)
    bad_work.install(triggers, steps)
    steps.install()
    reference = None
    if rank == 0 and plan["metric"] is not None:
        from harness.rank.reference import Reference

        reference = Reference(plan["metric"]["reference"], recorder, steps)
    loader.install(recorder, triggers, steps, reference)
    storage.install(recorder, triggers, steps, earlier)
    return steps, triggers


def _run_script(
    recorder: Recorder, steps: Steps, triggers: Triggers, script: str, args: list[str], flight: Path
) -> int:
    """Run it; returns the exit code that the interpreter would have left with.

    Args:
        flight: where the flight record goes if an exception comes out of communication.
    """
    from harness.rank import collectives

    sys.argv[:] = [script, *args]
    sys.path.insert(0, str(Path(script).parent))  # as ``python script`` does
    leave, rank_pid = os._exit, os.getpid()

    def recorded_exit(code: int) -> NoReturn:
        if (
            os.getpid() != rank_pid
        ):  # of a child that the script forked: torch's threads, not forked, never answer there
            leave(code)
        state, threads = steps.final_state(), native_threads()
        recorder.emit(
            Kind.EXIT, code=int(code), **state, returned=collectives.returned(), at_once=True, threads=threads
        )
        recorder.trim()
        leave(code)

    os._exit = recorded_exit  # type: ignore[assignment]
    try:
        triggers.at_phase(0, "init")
        runpy.run_path(script, run_name="__main__")
        return 0
    except SystemExit as error:
        if error.code is None or isinstance(error.code, int):
            return int(error.code or 0)  # True is one, too
        print(error.code, file=sys.stderr)
        return 1
    except BaseException as error:
        # BaseException: torch's CheckpointException is one, and KeyboardInterrupt ends a rank as well.
        frames = traceback.extract_tb(error.__traceback__)
        is_in_collective = _is_in_collective(error, frames)
        if is_in_collective and os.getpid() == rank_pid:
            traces.write_flight_record(flight)
        recorder.emit(
            Kind.EXCEPTION,
            type=type(error).__name__,
            message=str(error)[:2000],
            site=_site(frames, script),
            in_collective=is_in_collective,
            returned=collectives.returned(),
        )
        traceback.print_exception(error)
        return 1
    finally:
        os._exit = leave


def _site(frames: traceback.StackSummary, script: str) -> str | None:
    """``file:line`` of the innermost frame of the script's own directory."""
    mine = [f for f in frames if f.filename.startswith(str(Path(script).parent))]
    return f"{mine[-1].filename}:{mine[-1].lineno}" if mine else None


def _is_in_collective(error: BaseException, frames: traceback.StackSummary) -> bool:
    """Whether the exception came out of communication: of a collective, of waiting for one, or of DDP's backward.

    Decided by where it was raised, never by its text; what backends raise is a RuntimeError, and what torch raises of a
    wrong argument is none. Autograd's engine is C++ and tells no more than that it raised;
    there DDP waits for its buckets, so that it is communication if one of them failed, and else the script's own.
    """
    from harness.rank import bad_calls, collectives

    last = frames[-1] if frames else None
    if last is None or not isinstance(error, RuntimeError):
        return False
    if last.filename in (bad_calls.__file__, collectives.__file__) or any(
        part in last.filename for part in _COMMUNICATION
    ):
        return True
    return last.name == "_engine_run_backward" and collectives.has_failed_in_backward()


if __name__ == "__main__":
    sys.exit(run(sys.argv[1], sys.argv[2:]))
