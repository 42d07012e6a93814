"""Says when a thread comes back from where it may have met the other ranks; in the rank that saves.

What other ranks send is read by threads of C++ as soon as it comes, perhaps long before the script asks for it: that
it was read is no proof that the script waited for it. The script has learned of it when it comes back from a wait.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from harness.crashstates.ranks.markers import Speaker

# What answers from C++, without a system call if it is done already. A store's answers the asking thread reads itself.
_WAITS = {
    "Work": ("wait", "synchronize", "is_completed", "is_success", "exception", "result"),
    "ProcessGroup": ("monitored_barrier",),
    "Future": ("wait", "done", "value"),
}


@contextmanager
def said(speaker: Speaker) -> Iterator[None]:
    """While this lasts, ``met`` follows each wait; at the beginning ``threads`` tells which threads are Python's."""
    if (c10d := sys.modules.get("torch._C._distributed_c10d")) is None:
        yield
        return
    kinds: list[Any] = [c10d.Work, c10d.ProcessGroup, sys.modules["torch.futures"].Future]
    speaker.say("threads", " ".join(str(thread.native_id) for thread in threading.enumerate()))
    stock = [(kind, name, getattr(kind, name)) for kind in kinds for name in _WAITS[kind.__name__]]
    for kind, name, waits in stock:
        setattr(kind, name, _saying(waits, speaker))
    try:
        yield
    finally:
        for kind, name, waits in stock:
            setattr(kind, name, waits)


def _saying(waits: Callable[..., Any], speaker: Speaker) -> Callable[..., Any]:
    @functools.wraps(waits)
    def waited(*args: Any, **kwargs: Any) -> Any:
        try:
            return waits(*args, **kwargs)
        finally:
            speaker.say("met", "")

    return waited
