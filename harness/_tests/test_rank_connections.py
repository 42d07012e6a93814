"""The connections of a process: those that collectives go over are ended, and no other."""

from __future__ import annotations

import socket
from contextlib import ExitStack

import pytest

from harness._tests.launched import Run
from harness.checks import GUARANTEES
from harness.checks.diagnosis import diagnose
from harness.faults.abort_group import AbortGroup
from harness.faults.base import At
from harness.rank.connections import shut_down_all_but
from harness.wire import Kind


def connected(stack: ExitStack, family: socket.AddressFamily, host: str) -> tuple[socket.socket, socket.socket, int]:
    """Both ends of a connection within this process, and the port that it was made to."""
    listener = stack.enter_context(socket.create_server((host, 0), family=family))
    port = listener.getsockname()[1]
    mine = stack.enter_context(socket.create_connection((host, port)))
    return mine, stack.enter_context(listener.accept()[0]), port


@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_both_ends_of_a_connection_find_it_closed_but_for_those_of_the_store(
    family: socket.AddressFamily, host: str
) -> None:
    with ExitStack() as stack:
        peer, accepted, _ = connected(stack, family, host)
        of_store, at_store, store_port = connected(stack, family, host)
        pair, _other = (stack.enter_context(end) for end in socket.socketpair())
        assert shut_down_all_but(store_port) >= 2
        assert (peer.recv(1), accepted.recv(1)) == (b"", b"")
        at_store.sendall(b"x")
        assert of_store.recv(1) == b"x"
        assert pair.send(b"x") == 1


@pytest.mark.parametrize("ranks", [2, 3])
def test_all_ranks_fail_at_once_and_nobody_is_accused(run: Run, ranks: int) -> None:
    text = """
dist.init_process_group("gloo")
for _ in range(4):
    dist.all_reduce(torch.ones(1))
"""
    history = run(text, AbortGroup(rank=1, at=At(collective=3)), ranks=ranks, collective_timeout_s=60.0)
    assert history.outcome.duration_s < 30.0
    raised = history.of(Kind.EXCEPTION)
    assert {event.rank for event in raised} <= set(range(ranks))
    assert all(event.data["in_collective"] for event in raised)
    (cause,) = diagnose(history)
    assert (cause.rank, cause.how, cause.operation) == (None, "disconnected", "all_reduce"), cause
    verdicts = {name: GUARANTEES[name].check(history, None).outcome for name in ("FaultFired", "CulpritNamed")}
    assert verdicts == {"FaultFired": "valid", "CulpritNamed": "valid"}
    assert GUARANTEES["CollectivesAgree"].check(history, None).outcome == "valid"
