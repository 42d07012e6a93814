"""The warm parent: imports torch once, then forks a supervisor for each run it is asked for.

    python -m harness.rank.warm PARENT_PID [PACKAGE...]

Each line on stdin is a request, ``{"run_dir": ..., "env": {...}}``; each is answered by a line on stdout when that run
has ended, ``{"status": 0}``. It says ``{"ready": true}`` first, or ``{"error": ...}`` if a package of the user's cannot
be imported. It makes no CUDA call, no backward pass and no thread,
since forked processes could not use any of these afterwards.
"""

from __future__ import annotations

import gc
import importlib
import json
import linecache
import os
import signal
import sys
import traceback
import weakref
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from harness.rank import descendants, host_names, huge_pages, lifeline, scripts, sources

# torch.distributed.nn: see harness.rank.main. torch._dynamo: else the first optimizer step or DDP object imports it
# in every rank, for a second or two each.
PRELOAD = (
    "encodings.idna",
    "sqlite3",
    "torch",
    "torch._dynamo",
    "torch.distributed._composable",
    "torch.distributed.checkpoint.state_dict",
    "torch.distributed.nn",
    "torch.nn.parallel",
    "torch.utils.data",
    "harness.checkpoint.store",
    "harness.rank.agent",
    "harness.rank.bad_work",
    "harness.rank.batches",
    "harness.rank.collectives",
    "harness.rank.loader",
    "harness.rank.resume",
    "harness.rank.shared_memory",
    "harness.rank.storage",
    "harness.rank.supervisor",
)
# What torch imports at need in every rank; which these are differs between its versions.
PRELOAD_IF_THERE = ("torch.profiler._cupti_monitor", "torch.utils.serialization.config")
# Whose lines every rank quotes: torch.manual_seed formats a traceback for each kind of device.
QUOTED = (
    "harness.checkpoint.rng",
    "harness.rank.agent",
    "harness.rank.main",
    "harness.rank.supervisor",
    "harness.rank.warm",
    "torch._compile",
    "torch._dynamo.eval_frame",
    "torch.cuda",
    "torch.distributed.elastic.agent.server.api",
    "torch.distributed.elastic.agent.server.local_elastic_agent",
    "torch.distributed.elastic.metrics.api",
    "torch.distributed.elastic.multiprocessing",
    "torch.distributed.elastic.multiprocessing.api",
    "torch.distributed.elastic.multiprocessing.errors",
    "torch.distributed.elastic.multiprocessing.subprocess_handler.subprocess_handler",
    "torch.distributed.launcher.api",
    "torch.distributed.run",
    "torch.mps",
    "torch.random",
    "torch.xpu",
)


def wait(pid: int) -> int:
    """Wait for this child to end; returns its exit code."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _run(request: dict[str, Any], wait: Callable[[int], int]) -> int:
    """Fork a supervisor for one run and wait for it; returns its exit code."""
    from harness.rank.agent import be_agent
    from harness.rank.supervisor import supervise

    warm_pid = os.getpid()
    scripts.compile_ahead(Path(request["run_dir"]))
    pid = os.fork()
    if pid:
        status = wait(pid)
        descendants.end_all()  # nothing is left unless the supervisor was killed: then what it had adopted is ours
        return status
    code = 1
    try:
        os.environ.update(request["env"])
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(2, 1)  # stdout is the line to the controller: nobody else may write there
        supervise(Path(request["run_dir"]), warm_pid, be_agent)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _do_once_for_all() -> None:
    """What each rank would do at its start, with the same result."""
    import torch
    from torch.utils.data import DataLoader

    host_names.quote_addresses()
    sources.remember()
    scripts.install()
    for device in (torch.cuda, torch.xpu, torch.mtia):
        if not device._is_compiled():  # seeding it quotes the whole stack, for an error of a call that is never made
            vars(device)["traceback"] = SimpleNamespace(**vars(traceback) | {"format_stack": list})
    samples: Any = [torch.zeros(1), torch.zeros(1)]
    for _ in DataLoader(samples, 2, generator=torch.Generator()):
        pass  # it asks what kinds of collections its data are, which is remembered
    for name in QUOTED:
        if (module := sys.modules.get(name)) is not None and module.__file__:
            linecache.getlines(module.__file__)
    with suppress(AttributeError):  # private: init_process_group empties these caches, which importing has filled
        sys.modules["torch._dynamo"].trace_rules.clear_lru_cache()


def answer(what: dict[str, Any]) -> None:
    print(json.dumps(what), flush=True)


def prepare(packages: Sequence[str]) -> str:
    """Import all that a run needs, and the user's packages; returns why one of these cannot be imported, or nothing."""
    for package in PRELOAD:
        importlib.import_module(package)
    for package in PRELOAD_IF_THERE:
        with suppress(ModuleNotFoundError):
            importlib.import_module(package)
    for package in packages:
        try:
            with redirect_stdout(sys.stderr):  # stdout is the line to the controller
                importlib.import_module(package)
        except (Exception, SystemExit) as error:
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            return f"preload: the package {package} cannot be imported: {reason}"
    _do_once_for_all()
    for finalizer in list(weakref.finalize._registry):  # type: ignore[attr-defined]
        finalizer.atexit = False  # what was imported here is not for each forked process to tidy up at its end: 20 ms
    gc.collect()
    gc.freeze()  # the collector of a forked rank shall not touch, and so copy, our pages
    huge_pages.collapse()
    return ""


def serve(wait: Callable[[int], int] = wait) -> None:
    """Answer the requests on stdin until it ends.

    Args:
        wait: for a child; returns its exit code.
    """
    lifeline.adopt_orphans()  # of a supervisor that was killed
    answer({"ready": True})
    for line in sys.stdin:
        answer({"status": _run(json.loads(line), wait)})


def main(parent_pid: int, packages: list[str]) -> None:
    lifeline.die_with_parent(parent_pid)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the controller's to handle
    if problem := prepare(packages):
        answer({"error": problem})
    else:
        serve()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
