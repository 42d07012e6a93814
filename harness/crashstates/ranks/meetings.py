"""Says when a thread may have learned of the other ranks, and when it last told them anything; in the rank that saves.

What other ranks send is read by threads of C++ as soon as it comes, perhaps long before the script asks for it: that
it was read is no proof that the script waited for it. The script has learned of it when it comes back from a wait. And
what these threads send, perhaps late, says what the script knew when it asked them to.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from harness.crashstates.ranks.markers import Speaker

# What answers from C++, without a system call if it is done already. A store's answers the asking thread reads itself.
_WAITS = {
    "Work": ("wait", "synchronize", "result"),
    "ProcessGroup": ("monitored_barrier",),
    "Future": ("wait", "value"),
}
_POLLS = {"Work": ("is_completed", "is_success"), "Future": ("done",)}
_CALLS_BACK = {"Future": ("then", "add_done_callback")}
_ISSUES = {
    "ProcessGroup": (
        *("broadcast", "reduce", "gather", "scatter", "send", "recv", "recv_anysource", "barrier", "monitored_barrier"),
        *("allreduce", "allreduce_coalesced", "allgather", "_allgather_base", "allgather_coalesced"),
        *("allgather_into_tensor_coalesced", "reduce_scatter", "_reduce_scatter_base"),
        *("reduce_scatter_tensor_coalesced", "alltoall", "alltoall_base"),
    )
}
# Its collectives are issued and waited for in C++, out of sight: from then on what was read counts at once.
_OUT_OF_SIGHT = "torch.distributed._functional_collectives"


@contextmanager
def said(speaker: Speaker) -> Iterator[None]:
    """While this lasts, ``met`` after each wait and ``issued`` before each collective; first, Python's ``threads``."""
    c10d: Any = sys.modules.get("torch._C._distributed_c10d")
    if c10d is None or _OUT_OF_SIGHT in sys.modules:
        yield
        return
    torch: Any = sys.modules["torch"]
    others = [thread.native_id for thread in threading.enumerate() if thread is not threading.main_thread()]
    speaker.say("threads", " ".join(map(str, [os.getpid(), *others])))  # Python's id of the main one is its parent's
    kinds = {"Work": c10d.Work, "ProcessGroup": c10d.ProcessGroup, "Future": torch._C.Future}
    places: list[tuple[Any, str, Callable[..., Any]]] = [
        (torch.autograd, "backward", _waits),
        (torch.autograd, "backward", _issues),
    ]
    for names, replace in ((_ISSUES, _issues), (_WAITS, _waits), (_POLLS, _polls), (_CALLS_BACK, _calls_back)):
        places += [(kinds[kind], name, replace) for kind, of_kind in names.items() for name in of_kind]
    # As the class holds it: what getattr gives of a method of C++ takes no self any more.
    stock = [(place, name, vars(place)[name]) for place, name, _ in places if name in vars(place)]
    for place, name, replace in places:
        if name in vars(place):
            setattr(place, name, replace(getattr(place, name), speaker))
    is_over = False

    def hear(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "import" and arguments[0] == _OUT_OF_SIGHT and not is_over:
            speaker.say("unseen", "")

    sys.addaudithook(hear)
    try:
        yield
    finally:
        is_over = True
        for place, name, function in reversed(stock):
            setattr(place, name, function)


def _waits(function: Callable[..., Any], speaker: Speaker) -> Callable[..., Any]:
    """It comes back without an error when what was waited for is there."""

    @functools.wraps(function)
    def saying(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        speaker.say("met", "")
        return result

    return saying


def _polls(function: Callable[..., Any], speaker: Speaker) -> Callable[..., Any]:
    @functools.wraps(function)
    def saying(*args: Any, **kwargs: Any) -> Any:
        if result := function(*args, **kwargs):
            speaker.say("met", "")
        return result

    return saying


def _issues(function: Callable[..., Any], speaker: Speaker) -> Callable[..., Any]:
    @functools.wraps(function)
    def saying(*args: Any, **kwargs: Any) -> Any:
        speaker.say("issued", "")
        return function(*args, **kwargs)

    return saying


def _calls_back(function: Callable[..., Any], speaker: Speaker) -> Callable[..., Any]:
    """What is called back runs in a thread of C++, and may tell the others."""

    @functools.wraps(function)
    def saying(future: Any, callback: Callable[[Any], Any]) -> Any:
        return function(future, _after_meeting(callback, speaker))

    return saying


def _after_meeting(callback: Callable[[Any], Any], speaker: Speaker) -> Callable[[Any], Any]:
    def called(future: Any) -> Any:
        speaker.say("met", "")
        return callback(future)

    return called
