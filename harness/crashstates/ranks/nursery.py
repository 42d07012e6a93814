"""A process that does nothing but fork others when asked, and tell of their ends; the child side of session.

It answers on its channel:
    {"fork": role, ...} with the child's channel    {"forked": pid}
    {"signal": number, "pid": pid}                  nothing; a child that was told of as ended is not signalled
    {"import": [name, ...]}                         nothing; modules that each of its children would else import anew
    {"let_pass": true}                              nothing; see unheard.let_pass
    {"end": true}                                   {"left": bool}, once all that is below it is ended; it then exits
and says {"ended": pid, "status": code} of each child, after it has ended what was left of the child's session.
"""

from __future__ import annotations

import importlib
import os
import select
import signal
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NoReturn

from harness.crashstates.ranks.channel import Channel
from harness.crashstates.record import unheard
from harness.rank import descendants, lifeline

Request = dict[str, Any]
Role = Callable[[Channel, Request], None]


class Nursery:
    """Serves until the other end of ``channel`` asks for the end, or is gone.

    Args:
        roles: what a child does, by the name in the request; it exits when that returns.
    """

    def __init__(self, channel: Channel, roles: Mapping[str, Role]) -> None:
        self._channel = channel
        self._roles = roles
        self._children: dict[int, int] = {}  # pid -> pidfd
        self._poll = select.poll()
        self._poll.register(channel.fileno(), select.POLLIN)

    def serve(self) -> NoReturn:
        lifeline.adopt_orphans()  # what a rank started and left
        try:
            while self._answer():
                for _ in self._poll.poll():
                    self._reap()
        except OSError:
            pass  # the controller is gone
        except BaseException:
            traceback.print_exc()
        finally:
            descendants.end_all()
            os._exit(0)

    def _answer(self) -> bool:
        """Obey the requests that are there; returns whether to go on."""
        while self._channel.has_message():
            received = self._channel.receive()
            if received is None:
                return False
            request, channels = received
            if "end" in request:
                self._channel.send({"left": not descendants.end_all()})
                return False
            if "fork" in request:
                self._fork(request, channels[0])
            elif "signal" in request and request["pid"] in self._children:
                os.kill(request["pid"], request["signal"])
            if "let_pass" in request:
                unheard.let_pass()
            for name in request.get("import", ()):
                with suppress(BaseException):
                    importlib.import_module(name)
        return True

    def _fork(self, request: Request, channel: Channel) -> None:
        parent_pid = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._be_child(parent_pid, request, channel)
        channel.close()
        self._children[pid] = os.pidfd_open(pid)
        self._poll.register(self._children[pid], select.POLLIN)
        self._channel.send({"forked": pid})

    def _be_child(self, parent_pid: int, request: Request, channel: Channel) -> NoReturn:
        code = 1
        try:
            lifeline.die_with_parent(parent_pid)
            os.setsid()
            self._channel.close()
            for pidfd in self._children.values():
                os.close(pidfd)
            self._roles[request["fork"]](channel, request)
            code = 0
        except OSError:
            pass  # the controller is gone
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)

    def _reap(self) -> None:
        """Reap what has ended; a child's session is ended first, while its number cannot be another's."""
        while (ended := _first_ended()) is not None:
            if ended in self._children:
                with suppress(ProcessLookupError):
                    os.killpg(ended, signal.SIGKILL)
            status = os.waitstatus_to_exitcode(os.waitpid(ended, 0)[1])
            if ended in self._children:
                pidfd = self._children.pop(ended)
                self._poll.unregister(pidfd)
                os.close(pidfd)
                self._channel.send({"ended": ended, "status": status})


def _first_ended() -> int | None:
    """A child, or an adopted one, that has ended and is not reaped."""
    try:
        found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    return None if found is None else found.si_pid
