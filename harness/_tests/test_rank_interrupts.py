"""Real ranks on gloo, a signal in the middle of a collective, and a handler that raises: what its record counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness._tests.launched import Run, shown
from harness.checks import GUARANTEES
from harness.checks.unsent import unasked_in, unsent_in
from harness.wire import Kind

# Rank 1 comes to the call only when the signal has been sent, so that rank 0 is blocked in it at that moment: in the
# group's own method (a monitored barrier is over when that returns), or in the wait that follows it.
INTERRUPTED = """
import signal, sys, threading, time
from torch.distributed import distributed_c10d as c10d
dist.init_process_group("gloo")
store, group, main = c10d._get_default_store(), c10d._get_default_group(), threading.main_thread().ident
dist.all_reduce(torch.ones(1))

def raises(*_):
    raise ERROR("the handler's own")

def interrupt(sent):
    while group.sent == sent or (sys._current_frames()[main].f_code.co_name == "method") is not IN_ITS_METHOD:
        time.sleep(0.001)
    signal.pthread_kill(main, signal.SIGUSR1)
    store.set("sent", "")

if rank == 0:
    signal.signal(signal.SIGUSR1, raises)
    watching = threading.Thread(target=interrupt, args=(group.sent,))
    watching.start()
    try:
        CALL
    except ERROR as error:
        watching.join()
        show(said=str(error))
else:
    store.wait(["sent"])
    CALL
AFTER
"""
PATIENT: dict[str, Any] = {"collective_timeout_s": 20.0, "deadline_s": 60.0}  # no call fails of a busy machine
GOES_ON = "dist.all_reduce(torch.ones(1))\ndist.destroy_process_group()"
GIVES_UP = 'raise SystemExit("given up") if rank == 0 else signal.pause()'


@pytest.mark.parametrize("error", ["KeyboardInterrupt", "TimeoutError"])
@pytest.mark.parametrize(
    ("call", "raised"),
    [
        pytest.param("dist.monitored_barrier()", 1, id="in the call"),
        pytest.param("dist.all_reduce(torch.ones(1))", 0, id="in the wait for what it sent"),
    ],
)
@pytest.mark.parametrize(
    ("after", "more"), [pytest.param(GOES_ON, 1, id="caught"), pytest.param(GIVES_UP, 0, id="and the script ends")]
)
def test_a_call_that_a_signal_handler_ended_is_one_that_was_asked_for(
    run: Run, tmp_path: Path, call: str, raised: int, error: str, after: str, more: int
) -> None:
    text = INTERRUPTED.replace("CALL", call).replace("ERROR", error).replace("AFTER", after)
    history = run(text.replace("IN_ITS_METHOD", str(bool(raised))), **PATIENT)
    assert shown(tmp_path, history, 0) == {"said": "the handler's own"}
    word = history.of((Kind.EXCEPTION, Kind.EXIT), rank=0, restart=0)[0]
    counted: dict[str, Any] = word.data["returned"]["0"]
    assert (counted["calls"], counted["raised"]) == (2 - raised + more, raised)
    assert len(history.of(Kind.COLLECTIVE, rank=0, restart=0)) == counted["calls"] + counted["raised"]
    assert (unasked_in(history, 0, "0"), unsent_in(history, 0, "0")) == (None, None)
    if more:
        assert history.outcome.exit_code == 0
        assert GUARANTEES["CollectivesAgree"].check(history, None).outcome == "valid"


@pytest.mark.parametrize(
    ("call", "is_within"),
    [
        pytest.param("dist.monitored_barrier()", True, id="in the call"),
        pytest.param("dist.all_reduce(torch.ones(1))", False, id="in the wait for what it sent"),
    ],
)
def test_a_call_in_which_a_signal_handler_ends_the_process_was_asked_for(run: Run, call: str, is_within: bool) -> None:
    """As a scheduler's grace period ends: the handler leaves at once, and never comes back to the call."""
    text = INTERRUPTED.replace("CALL", call).replace("ERROR", "OSError").replace("AFTER", GOES_ON)
    text = text.replace('raise OSError("the handler\'s own")', "os._exit(3)")
    history = run(text.replace("IN_ITS_METHOD", str(is_within)), **PATIENT)
    (word,) = history.of((Kind.EXCEPTION, Kind.EXIT), rank=0, restart=0)
    assert (word.data["code"], word.data["at_once"]) == (3, True)
    counted: dict[str, Any] = word.data["returned"]["0"]
    assert len(history.of(Kind.COLLECTIVE, rank=0, restart=0)) == counted["calls"] + counted["raised"]
    assert (unasked_in(history, 0, "0"), unsent_in(history, 0, "0")) == (None, None)
