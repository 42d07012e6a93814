"""The child side: imports a user's file once, and forks the ranks that save and load.

    python -m harness.crashstates.ranks.host CHANNEL_FD PARENT_PID [PACKAGE...]

Four generations, each forked from the one before: this process, which imports the packages; one for each file, which
imports that; for readers one more, to which strace can be attached before there are any; and the ranks.
"""

from __future__ import annotations

import faulthandler
import gc
import importlib
import importlib.util
import inspect
import os
import signal
import sys
import threading
import traceback
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from harness.crashstates.garbage import rarely_collected
from harness.crashstates.ranks import rank
from harness.crashstates.ranks.channel import Channel
from harness.crashstates.ranks.nursery import Nursery, Request
from harness.crashstates.record.tracing import allow_tracing
from harness.rank import host_names, lifeline

MAX_RANKS = 64
_BEFORE_GROUPS = ("torch", "torch.distributed.nn")  # imported later, the second would pin the process group


class _Unfit(Exception):
    """The file lacks what it needs; the text says what, and what is allowed."""


def main(channel_fd: int, parent_pid: int, packages: list[str]) -> None:
    lifeline.die_with_parent(parent_pid, signal.SIGTERM)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the controller's to handle
    channel = Channel.of_fd(channel_fd)
    with rarely_collected(1_000_000):
        for package in packages:
            try:
                importlib.import_module(package)
            except (Exception, SystemExit) as error:
                channel.send({"error": f"the package {package} cannot be imported: {type(error).__name__}: {error}"})
                return
    _freeze()
    channel.send({"ready": True})
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # from now on the channel tells that the controller is gone
    Nursery(channel, {"file": _be_file}).serve()


def _be_file(channel: Channel, request: Request) -> None:
    """Import the file, tell what is in it, and fork its ranks."""
    rank.redirect_output(Path(request["output"]))
    stacks = Path(request["stacks"]).open("w")  # noqa: SIM115
    faulthandler.register(signal.SIGUSR1, file=stacks)
    path = Path(request["file"])
    try:
        with rarely_collected(1_000_000):
            module = _import(path)
            facts = _facts(path, module)
    except _Unfit as error:
        channel.send({"error": f"{path}: {error}"})
        return
    faulthandler.unregister(signal.SIGUSR1)
    stacks.close()
    _freeze()
    channel.send(facts)
    roles = {
        "saver": lambda channel, request: rank.be_saver(module, facts["ranks"], channel, request),
        "reader": lambda channel, request: rank.be_reader(module, facts["ranks"], channel, request),
    }

    def be_readers(channel: Channel, _: Request) -> None:
        allow_tracing()
        Nursery(channel, roles).serve()

    Nursery(channel, roles | {"readers": be_readers}).serve()


class _FromSource(SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


def _import(path: Path) -> ModuleType:
    """The user's file as a module by its stem, as ``python FILE`` would find its neighbours."""
    if not path.is_file():
        raise _Unfit("there is no such file; give a Python file with save(directory, step) and load(directory)")
    sys.path.insert(0, str(path.parent))
    sys.argv = [str(path)]
    if path.suffix != ".py":
        raise _Unfit("is not a Python file; give one that ends in .py")
    # Always from its source: a cached compilation is told from a new text by second and size alone, and somebody may
    # have edited it within that second.
    loader = _FromSource(path.stem, str(path))
    spec = importlib.util.spec_from_loader(path.stem, loader, origin=str(path))
    assert spec is not None
    spec.has_location = True
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        loader.exec_module(module)
    except BaseException as error:
        raise _Unfit(f"cannot be imported:\n{_own_traceback(error, path)}") from error
    return module


def _own_traceback(error: BaseException, path: Path) -> str:
    """From the file on; how it came to be imported is no concern of the user's."""
    top = error.__traceback__
    while top is not None and top.tb_next is not None and top.tb_frame.f_code.co_filename != str(path):
        top = top.tb_next
    if isinstance(error, SyntaxError):
        top = None
    return "".join(traceback.format_exception(type(error), error, top))[-8000:].strip()


def _facts(path: Path, module: ModuleType) -> dict[str, Any]:
    for name, arguments in (("save", ("directory", "step")), ("load", ("directory",))):
        _require_function(module, name, arguments)
    has_expected = hasattr(module, "expected")
    if has_expected:
        _require_function(module, "expected", ("step",))
    world, steps = getattr(module, "ranks", 1), getattr(module, "steps", (1, 2, 3))
    if type(world) is not int or not 1 <= world <= MAX_RANKS:
        raise _Unfit(f"ranks = {world!r}; it must be a whole number from 1 to {MAX_RANKS}")
    if (
        not isinstance(steps, list | tuple | range)
        or not all(type(step) is int and step >= 1 for step in steps)
        or not steps
        or list(steps) != sorted(set(steps))
    ):
        raise _Unfit(f"steps = {steps!r}; it must be at least one whole number from 1, ascending, such as (1, 2, 3)")
    _prepare_forks(path, world)
    return {"ranks": world, "steps": list(steps), "has_expected": has_expected}


def _prepare_forks(path: Path, world: int) -> None:
    """Import what all ranks would, and refuse what a fork does not survive."""
    if world > 1:
        for name in _BEFORE_GROUPS:
            try:
                importlib.import_module(name)
            except ImportError as error:
                raise _Unfit(f"ranks = {world} needs torch for their process group: {error}") from error
        host_names.quote_addresses()
    if "torch" in sys.modules and _mentions_optimizer(path):
        importlib.import_module("torch._dynamo")  # else each rank would, at its first optimizer step: 1 to 2 s
    if len(threads := threading.enumerate()) > 1:
        names = ", ".join(thread.name for thread in threads[1:])
        raise _Unfit(
            f"starts threads while it is imported ({names}); its ranks are forked later and would not have them: "
            "start them in save and load"
        )
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        raise _Unfit(
            "makes a process group while it is imported, before there are ranks; leave it out: with ranks = N both "
            "save and load find a gloo group of N"
        )


def _mentions_optimizer(path: Path) -> bool:
    """Whether it is likely to make one; a wrong guess costs a second or two."""
    return b"optim" in path.read_bytes()


def _require_function(module: ModuleType, name: str, arguments: tuple[str, ...]) -> None:
    allowed = f"it must have {name}({', '.join(arguments)})"
    function = getattr(module, name, None)
    if function is None:
        raise _Unfit(f"has no {name}; {allowed}")
    if not callable(function):
        raise _Unfit(f"{name} is a {type(function).__name__}; {allowed}")
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError as error:
        raise _Unfit(f"{name}{inspect.signature(function)} cannot be called so ({error}); {allowed}") from error
    except ValueError:
        pass  # one that does not tell its arguments
    if inspect.iscoroutinefunction(function):
        raise _Unfit(f"{name} is a coroutine function; wrap it: def {name}(...): return asyncio.run(...)")


def _freeze() -> None:
    """What is there now shall not be touched, and so copied, by the collectors of forked processes.

    What little garbage is among it stays: to look for it among all that torch makes takes 0.15 s.
    """
    gc.freeze()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
    os._exit(0)
