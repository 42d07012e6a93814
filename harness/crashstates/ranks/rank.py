"""Inside a forked rank: its place in the group, then the user's ``save`` or ``load`` as often as it is asked."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

from harness.crashstates.ranks import content, lines, meetings
from harness.crashstates.ranks.channel import Channel
from harness.crashstates.ranks.hardship import obey_modes, spend
from harness.crashstates.ranks.markers import Speaker
from harness.crashstates.ranks.nursery import Request
from harness.crashstates.ranks.outcome import Loaded, Raised, RankOutcome, to_wire
from harness.crashstates.record import tracing

GROUP_TIMEOUT = timedelta(days=1)  # the controller has the deadlines
_MAX_TEXT = 4000

# Kept open for the life of the process: faulthandler writes to it from a signal handler.
_kept: list[Any] = []


def be_saver(module: ModuleType, world_size: int, channel: Channel, request: Request) -> None:
    """Serves ``save`` with ``step`` and ``directory``, and perhaps with:

    is_silent       no markers
    obeys_modes     from now on root's power over file modes is gone
    spent           rank -> call -> how many to make in vain first (hardship.spend)
    """
    speaker = _prepare(world_size, channel, request)

    def save(message: Request) -> RankOutcome:
        if message.get("obeys_modes"):
            obey_modes()
        spend(message.get("spent", {}).get(str(request["rank"]), {}))
        if message.get("is_silent"):  # its calls are counted: let there be none but its own
            module.save(Path(message["directory"]), message["step"])
        else:
            speaker.say("begin", message["step"])
            with lines.said(speaker), meetings.said(speaker):
                module.save(Path(message["directory"]), message["step"])
            speaker.say("ack", message["step"])
        return Loaded("saved", f"saved step {message['step']}")

    _serve(channel, {"save": save})


def be_reader(module: ModuleType, world_size: int, channel: Channel, request: Request) -> None:
    known = set(sys.modules)
    speaker = _prepare(world_size, channel, request)

    def load(message: Request) -> RankOutcome:
        speaker.say("load", message["n"])
        try:
            return content.loaded(module.load(Path(message["directory"])))
        finally:
            speaker.say("loaded", message["n"])

    def expected(message: Request) -> RankOutcome:
        return content.loaded(module.expected(message["step"]))

    _serve(channel, {"load": load, "expected": expected}, lambda: sorted(set(sys.modules) - known))


def redirect_output(path: Path) -> None:
    """stdout and stderr to a file, stdin from nowhere."""
    null = os.open(os.devnull, os.O_RDONLY)
    opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
    for source, fd in ((null, 0), (opened, 1), (opened, 2)):
        os.dup2(source, fd)
    os.close(null)
    os.close(opened)
    # A killed rank should not take its last words with it.
    sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)


def _prepare(world_size: int, channel: Channel, request: Request) -> Speaker:
    """Output, signals, process group; then say that it is ready."""
    redirect_output(Path(request["output"]))
    tracing.allow_tracing()
    sys.dont_write_bytecode = True  # else the first load would leave something for the second
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _kept.append(Path(request["stacks"]).open("w"))  # noqa: SIM115
    faulthandler.enable(_kept[-1])
    faulthandler.register(signal.SIGUSR1, file=_kept[-1])
    if world_size > 1:
        _join(world_size, request["rank"], channel)
    speaker = Speaker()
    channel.send({"ready": True})
    return speaker


def _join(world_size: int, rank: int, channel: Channel) -> None:
    """The default process group, as torchrun would have told of it. Rank 0 is given the socket that all others call."""
    import torch.distributed as dist
    from torch._C._distributed_c10d import TCPStore

    received = channel.receive()
    if received is None:
        raise ConnectionError("the controller is gone")
    port, listening = received[0]["port"], received[1]
    common = TCPStore(
        "127.0.0.1",
        port,
        world_size,
        is_master=rank == 0,
        timeout=GROUP_TIMEOUT,
        wait_for_workers=False,
        master_listen_fd=listening[0].detach() if rank == 0 else None,
    )
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(world_size),
        "LOCAL_WORLD_SIZE": str(world_size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    dist.init_process_group("gloo", store=common, rank=rank, world_size=world_size, timeout=GROUP_TIMEOUT)


def _serve(
    channel: Channel,
    calls: dict[str, Callable[[Request], RankOutcome]],
    imported: Callable[[], list[str]] = list,
) -> None:
    """Answer each request with what came of it, until there are no more."""
    while (received := channel.receive()) is not None:
        message, _ = received
        try:
            outcome = calls[message["do"]](message)
        except BaseException as error:
            outcome = _raised(error)
        sys.stdout.flush()
        channel.send({"outcome": to_wire(outcome), "imported": imported()[:1000]})
        del received, message, outcome


def _raised(error: BaseException) -> Raised:
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    try:
        message = str(error)
    except Exception as trouble:
        message = f"(its text cannot be had: {trouble!r})"
    return Raised(name, message[:_MAX_TEXT].encode(errors="replace").decode(), _site(error.__traceback__))


def _site(trace: TracebackType | None) -> str:
    """The innermost line of the user's code; else of any code."""
    places = []
    while trace is not None:
        places.append((trace.tb_frame.f_code.co_filename, trace.tb_lineno))
        trace = trace.tb_next
    users = [place for place in places if lines.is_users(place[0]) and place[0] not in _OURS]
    filename, line = (users or places or [("?", 0)])[-1]
    return f"{filename}:{line}"


_OURS = (__file__, content.__file__)
