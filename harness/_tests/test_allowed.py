"""What the guarantees demand of a plan follows from what its faults mean."""

from __future__ import annotations

from typing import Any

import pytest

from harness.allowed import allowed
from harness.faults import Fault, load_fault
from harness.plan import Broken, Expect, Plan


def fault(kind: str, rank: Any = 1, restart: int = 0, at: dict[str, Any] | None = None, **fields: Any) -> Fault:
    return load_fault({"kind": kind, "rank": rank, "at": {"step": 5, **(at or {}), "restart": restart}, **fields})


def plan(*faults: Fault, max_restarts: int = 0, ranks: int = 2) -> Plan:
    wanted = Expect(outcome="guaranteed")
    return Plan(name="x", script="x.py", ranks=ranks, faults=faults, max_restarts=max_restarts, expect=wanted)


def found(guarantee: Any, rank: int | None = None, step: int | None = 5) -> Expect:
    return Expect(outcome="detected", broken=(Broken(guarantee=guarantee, rank=rank, step=step),))


KILL, LATER = fault("kill"), fault("kill", restart=1)
SAVE_ERROR = fault("raise", at={"failpoint": "ckpt.shard.write:before"})
LAST_ENDS = found("EndsLikeBaseline"), found("ReplayIdentical")
CASES: dict[str, tuple[Plan, list[Expect]]] = {
    "no fault is an audit": (plan(), [Expect(outcome="clean")]),
    "a kill within the budget recovers": (plan(KILL, max_restarts=1), [Expect(outcome="recovers", restarts=1)]),
    "a kill beyond the budget stops": (plan(KILL), [Expect(outcome="stops", restarts=0)]),
    "two kills take two restarts": (plan(KILL, LATER, max_restarts=2), [Expect(outcome="recovers", restarts=2)]),
    "the second kill is beyond the budget": (
        plan(KILL, LATER, max_restarts=1),
        [Expect(outcome="stops", restarts=1)],
    ),
    "an error in a save may be handled, or end the launch": (
        plan(SAVE_ERROR),
        [Expect(outcome="recovers"), Expect(outcome="stops", restarts=0)],
    ),
    "an error in a save with a restart left must recover": (
        plan(SAVE_ERROR, max_restarts=1),
        [Expect(outcome="recovers")],
    ),
    "exit code 0 may pass for success": (
        plan(fault("exit", code=0)),
        [Expect(outcome="recovers"), Expect(outcome="stops", restarts=0)],
    ),
    "on all ranks it passes for the end of the job, whose state is found to be another": (
        plan(fault("exit", rank="all", code=0), max_restarts=1),
        [Expect(outcome="recovers"), found("EndsLikeBaseline", step=None)],
    ),
    "another exit code may not": (plan(fault("exit", code=3)), [Expect(outcome="stops", restarts=0)]),
    "a skipped collective is found where it was": (
        plan(fault("skip_collective", at={"collective": 1})),
        [found("CollectivesAgree", rank=1)],
    ),
    "of several ranks none is demanded by name": (
        plan(fault("skip_collective", rank=[0, 2], at={"collective": 1}), ranks=4),
        [found("CollectivesAgree")],
    ),
    "between two ranks that start again none is demanded by name": (
        plan(KILL, fault("skip_collective", restart=1, at={"collective": 1}), max_restarts=1),
        [found("CollectivesAgree")],
    ),
    "between three one is": (
        plan(KILL, fault("skip_collective", restart=1, at={"collective": 1}), max_restarts=1, ranks=3),
        [found("CollectivesAgree", rank=1)],
    ),
    "a buffer that has drifted shows at the end, unless the job stops before": (
        plan(fault("drift_buffer", rank=0), fault("skip_collective", restart=1, at={"collective": 1})),
        [
            found("EndsLikeBaseline", step=None),
            found("ReplayIdentical", step=None),
            *(
                Expect(outcome="detected", broken=(one.broken[0], Broken(guarantee="CollectivesAgree", step=5)))
                for one in (found("EndsLikeBaseline", step=None), found("ReplayIdentical", step=None))
            ),
            Expect(outcome="recovers"),
            Expect(outcome="stops", restarts=0),
        ],
    ),
    "a rank that loses its connections is as one that ends": (
        plan(fault("abort_group", at={"collective": 1}), max_restarts=1),
        [Expect(outcome="recovers", restarts=1)],
    ),
    "a flipped bit parts the replicas": (plan(fault("flip_bit")), [found("ReplicasAgree", rank=1)]),
    "a gradient that one rank receives with a flipped bit parts the replicas, if any of it is left": (
        plan(fault("corrupt_collective", at={"phase": "backward", "collective": 1})),
        [Expect(outcome="recovers"), Expect(outcome="stops", restarts=0), found("ReplicasAgree", rank=1)],
    ),
    "what else it receives may be shared with all by its gradient": (
        plan(fault("corrupt_collective", at={"collective": 1})),
        [Expect(outcome="recovers"), Expect(outcome="stops", restarts=0), found("ReplicasAgree", rank=1), *LAST_ENDS],
    ),
    "a wrong sample shows at the end, or when it is read again": (plan(fault("nan_batch")), [*LAST_ENDS]),
    "a wrong sample in a job that stops may never show": (
        plan(fault("nan_batch", at={"step": 3}), KILL),
        [found("EndsLikeBaseline", step=3), found("ReplayIdentical", step=3), Expect(outcome="stops", restarts=0)],
    ),
    "a buffer that DDP overwrites may be as ever": (
        plan(fault("drift_buffer", rank=1)),
        [
            Expect(outcome="recovers", restarts=0),
            found("EndsLikeBaseline", step=None),
            found("ReplayIdentical", step=None),
        ],
    ),
    "one of rank 0 may not": (
        plan(fault("drift_buffer", rank=0)),
        [found("EndsLikeBaseline", step=None), found("ReplayIdentical", step=None)],
    ),
    "the first that leaves something wrong counts": (
        plan(fault("skip_update", at={"step": 7}), fault("flip_bit", rank=0)),
        [found("ReplicasAgree", rank=0)],
    ),
    "one that leaves something wrong later may be found sooner": (
        plan(
            fault("nan_batch"), KILL, fault("skip_load", at={"step": None, "phase": "load"}, restart=1), max_restarts=2
        ),
        [
            *LAST_ENDS,
            *(
                Expect(outcome="detected", broken=(one.broken[0], Broken(guarantee="CollectivesAgree", rank=1)))
                for one in LAST_ENDS
            ),
        ],
    ),
    "a rank that stays away from a save may leave before it is missed": (
        plan(fault("skip_save")),
        [found("CollectivesAgree", rank=1), Expect(outcome="stops", restarts=0)],
    ),
    "and with a restart left the job then recovers": (
        plan(fault("skip_save"), max_restarts=1),
        [found("CollectivesAgree", rank=1), Expect(outcome="recovers", restarts=1)],
    ),
    "a short stall changes nothing": (
        plan(fault("stalled_read", duration_s=0.1), max_restarts=1),
        [Expect(outcome="recovers")],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_allowed_outcomes(name: str) -> None:
    given, outcomes = CASES[name]
    assert list(allowed(given)) == outcomes
