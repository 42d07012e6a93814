"""Histories written by hand, for the tests of the checks: a small job, told step by step, with one thing gone wrong.

    run(ranks=2).start().updates(1, 12).leave().history()

is a healthy job of two ranks. ``edit``, ``drop`` and ``tell`` plant what a test is about. Digests are words that
depend on the step alone (``params-7``), as they would in a job that repeats itself byte for byte.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Self

from harness.evidence import Asked
from harness.faults import Fault
from harness.history import SIGTERM_HEADER, AgentExit, Baseline, History, Outcome
from harness.plan import Expect, Plan
from harness.wire import GENERATORS, Event, Kind

EPOCH = 6  # updates of an epoch
BATCH = 2  # samples of a batch
RAW = re.compile(r"[\[{(]['\d]|None")  # in a message: what Python prints of its own lists and tables
DIGESTS = ("params", "optimizer", "buffers")


def run(ranks: int = 2, faults: Iterable[Fault] = (), expect: str | Expect = "clean", **plan: Any) -> Story:
    wanted = Expect(outcome=expect) if isinstance(expect, str) else expect  # type: ignore[arg-type]
    fields: dict[str, Any] = {"script": "/train.py"} | plan
    return Story(Plan(name="told", ranks=ranks, faults=tuple(faults), expect=wanted, **fields))


def digests(step: int) -> dict[str, Any]:
    return {what: f"{what}-{step}" for what in DIGESTS}


def generators(rank: int, step: int) -> dict[str, str]:
    return {part: f"{part}-{rank}-{step}" for part in GENERATORS}


def sample_ids(step: int, rank: int, ranks: int) -> list[int]:
    first = ((step - 1) % EPOCH) * ranks * BATCH
    return [first + rank + ranks * i for i in range(BATCH)]


@dataclass
class Story:
    """A run being told; each method adds to the record of every rank that still lives."""

    plan: Plan
    events: list[dict[str, Any]] = field(default_factory=list)
    restart: int = 0
    step: int = 0
    passed_ns: int = 0
    alive: set[int] = field(default_factory=set)
    kept: dict[int, str] = field(default_factory=dict)  # step -> verdict: what the checkpoint directory holds
    stacks: dict[tuple[int, int], str] = field(default_factory=dict)
    agent_exits: list[AgentExit] = field(default_factory=list)
    damaged: tuple[str, ...] = ()
    asked: list[Asked] = field(default_factory=list)

    def tell(self, rank: int, kind: Kind, *, step: int | None = None, phase: str = "init", **data: Any) -> Self:
        """One event; ranks that have died say nothing more."""
        if rank in self.alive or kind is Kind.START:
            at = self.step if step is None else step
            place = {"rank": rank, "restart": self.restart, "kind": str(kind), "step": at, "phase": phase}
            self.events.append({**place, "data": data, "passed_ns": self.passed_ns})
        return self

    def passes(self, duration_s: float) -> Self:
        """Time, before the next event."""
        self.passed_ns += int(duration_s * 1e9)
        return self

    # -- a healthy job ---------------------------------------------------------------------------------------------

    def start(self, *, load: int | None = None, with_store: bool = False) -> Self:
        """A launch: the first, or after the ranks of the one before have ended; ``load``: the step it resumes from."""
        self.restart += bool(self.events)
        self.alive = set(range(self.plan.ranks))
        self.step = 0
        for rank in self.alive:
            self.tell(rank, Kind.START, pid=self.pid(rank), local_rank=rank, world_size=self.plan.ranks)
            self.tell(rank, Kind.GROUP, group="world", ranks=list(range(self.plan.ranks)), backend="gloo")
            self.collective(rank, "broadcast", phase="init", numel=100, root=0, reduce_op=None, site="train.py:20")
        if with_store or load is not None:
            self.inventory("load")
            for rank in self.alive:
                self.load(rank, load)
        self.step = load or 0
        for rank in self.alive:
            told = {"matched_step": self.step if self.step or self.restart else None, "claimed_step": load}
            self.tell(rank, Kind.STATE, phase="optimizer_step", **digests(self.step), **told)
        return self

    def load(self, rank: int, step: int | None) -> Self:
        path = None if step is None else f"/run/checkpoints/step-{step}"
        manifest = None if step is None else f"manifest-{step}"
        return self.tell(
            rank, Kind.LOAD, phase="load", path=path, loaded_step=step, manifest=manifest, candidates=self.entries()
        )

    def updates(self, first: int, last: int) -> Self:
        """Updates ``first`` to ``last`` of every living rank, with their batches and collectives."""
        for step in range(first, last + 1):
            for rank in sorted(self.alive):
                self.begin(rank, step)
            for rank in sorted(self.alive):
                self.update(rank, step)
        return self

    def begin(self, rank: int, step: int) -> Self:
        """A step up to its gradients being sent."""
        self.step = step
        epoch, index = divmod(step - 1, EPOCH)
        if index == 0 or not self._in_epoch(rank):
            self.tell(rank, Kind.LOADER, phase="load_batch", loader=0, epoch=epoch, length=EPOCH)
        ids = sample_ids(step, rank, self.plan.ranks)
        self.tell(rank, Kind.BATCH, phase="load_batch", loader=0, epoch=epoch, index=index, ids=ids)
        return self.collective(rank)

    def update(self, rank: int, step: int, **data: Any) -> Self:
        epoch, index = divmod(step - 1, EPOCH)
        state = digests(step) | generators(rank, step)
        state |= {"scaler": None, "lr": [0.1], "epoch": epoch, "batches": 1}
        ids = sample_ids(step, rank, self.plan.ranks)
        self.tell(rank, Kind.UPDATE, phase="optimizer_step", **state | {"ids": ids} | data)
        if index == EPOCH - 1:
            begun = self._in_epoch(rank)
            batches = sum(e["kind"] == Kind.BATCH for e in begun)
            self.tell(rank, Kind.LOADER_END, step=step + 1, phase="load_batch", loader=0, epoch=epoch, batches=batches)
        return self

    def _in_epoch(self, rank: int) -> list[dict[str, Any]]:
        """This process's events since its loader began; empty if it has not, or has come to its end."""
        mine = [e for e in self.events if (e["rank"], e["restart"]) == (rank, self.restart)]
        places = [i for i, e in enumerate(mine) if e["kind"] in (Kind.LOADER, Kind.LOADER_END)]
        return mine[places[-1] :] if places and mine[places[-1]]["kind"] == Kind.LOADER else []

    def collective(self, rank: int, op: str = "all_reduce", *, phase: str = "backward", **data: Any) -> Self:
        usual: dict[str, Any] = {
            "group": "world",
            "reduce_op": "SUM",
            "numel": 500,
            "dtype": "float32",
            "root": None,
            "site": "train.py:61",
        }
        return self.tell(rank, Kind.COLLECTIVE, phase=phase, op=op, **usual | data)

    def save(self, keep: int = 10) -> Self:
        """All ranks save; the newest ``keep`` checkpoints stay."""
        for rank in sorted(self.alive):
            self.tell(rank, Kind.SAVE_START, phase="save", path=f"/run/checkpoints/step-{self.step}")
            self.collective(rank, "all_gather", phase="save", numel=8, dtype="uint8", reduce_op=None, site="store.py:9")
        self.kept[self.step] = "complete"
        for step in sorted(self.kept)[:-keep]:
            del self.kept[step]
        for rank in sorted(self.alive):
            path = f"/run/checkpoints/step-{self.step}"
            self.tell(rank, Kind.SAVE_END, phase="save", path=path, manifest=f"manifest-{self.step}")
        return self.inventory("save")

    def entries(self) -> list[dict[str, Any]]:
        return [
            {
                "name": f"step-{step}",
                "step": step,
                "verdict": verdict,
                "reason": f"it is {verdict}",
                "manifest": f"manifest-{step}" if verdict == "complete" else None,
            }
            for step, verdict in sorted(self.kept.items(), reverse=True)
        ]

    def inventory(self, why: str) -> Self:
        return self.tell(0, Kind.INVENTORY, phase=why, root="/run/checkpoints", entries=self.entries(), why=why)

    def leave(self, *ranks: int) -> Self:
        """These ranks (all that live, if none is named) come to the end of their script."""
        for rank in ranks or sorted(self.alive):
            self.collective(
                rank, "barrier", phase="optimizer_step", numel=0, dtype=None, reduce_op=None, site="t.py:90"
            )
            self.tell(rank, Kind.EXIT, phase="teardown", code=0, **digests(self.step))
        self.alive -= set(ranks or self.alive)
        return self

    # -- trouble ---------------------------------------------------------------------------------------------------

    def pid(self, rank: int) -> int:
        return 1000 * (self.restart + 1) + rank

    def fire(self, rank: int, index: int = 0, *, phase: str = "backward", step: int | None = None, **data: Any) -> Self:
        kind = self.plan.faults[index].kind
        return self.tell(rank, Kind.FAULT, step=step, phase=phase, index=index, fault=kind, effect="told", **data)

    def kill(self, rank: int, *, code: int | None = -9, fatal: str | None = None) -> Self:
        """It dies without a last word; ``fatal``: what faulthandler wrote; the agent reports ``code``."""
        if fatal is not None:
            self.stacks[rank, self.restart] = (
                f"Fatal Python error: {fatal}\n\nCurrent thread 0x1 (most recent call first)"
            )
        return self._reported(rank, code)

    def cut_off(self, *ranks: int) -> Self:
        """These ranks (all that live) fail in a collective, because a peer is gone."""
        for rank in ranks or sorted(self.alive):
            self.raises(rank, "RuntimeError", "Connection closed by peer", in_collective=True)
        return self

    def ended_by_launcher(self, *ranks: int) -> Self:
        for rank in ranks or sorted(self.alive):
            self.stacks[rank, self.restart] = f"{SIGTERM_HEADER}\nCurrent thread 0x1 (most recent call first)"
            self.alive.discard(rank)
        return self

    def raises(
        self, rank: int, kind: str, message: str, *, in_collective: bool = False, phase: str = "backward", **data: Any
    ) -> Self:
        said = {"type": kind, "message": message, "site": "train.py:61", "in_collective": in_collective, **data}
        self.tell(rank, Kind.EXCEPTION, phase=phase, **said)
        self.tell(rank, Kind.EXIT, phase="teardown", code=1)
        return self._reported(rank, 1)

    def exits(self, rank: int, code: int) -> Self:
        self.tell(rank, Kind.EXIT, code=code)
        return self._reported(rank, code or None)

    def _reported(self, rank: int, code: int | None) -> Self:
        if code is not None:
            order = len(self.agent_exits)
            self.agent_exits.append(
                AgentExit(pid=self.pid(rank), local_rank=rank, exit_code=code, order=order, t_ns=self._now_ns())
            )
        self.alive.discard(rank)
        return self

    def _now_ns(self) -> int:
        """Between the last event and the next, and after the end that was told before."""
        return len(self.events) * 1_000_000 + self.passed_ns + 1_000 * (len(self.agent_exits) + 1)

    def edit(self, kind: Kind, *, data: dict[str, Any] | None = None, **match: Any) -> Self:
        """Change the events of this kind that ``match`` (rank, step, restart, phase); there must be one."""
        found = self._matching(kind, match)
        for event in found:
            event["data"] = event["data"] | (data or {})
        return self

    def without(self, name: str, kind: Kind, **match: Any) -> Self:
        """Take a field out of these events, as of damaged lines."""
        for event in self._matching(kind, match):
            event["data"] = {key: value for key, value in event["data"].items() if key != name}
        return self

    def drop(self, kind: Kind, **match: Any) -> Self:
        for event in self._matching(kind, match):
            self.events.remove(event)
        return self

    def _matching(self, kind: Kind, match: dict[str, Any]) -> list[dict[str, Any]]:
        found = [e for e in self.events if e["kind"] == kind and all(e[name] == value for name, value in match.items())]
        assert found, f"no {kind} with {match} was told"
        return found

    # -- the end ---------------------------------------------------------------------------------------------------

    def history(
        self, exit_code: int | None = 0, *, timed_out: bool = False, leftovers: tuple[str, ...] = ()
    ) -> History:
        """The history; between two events a millisecond passes, if no more."""
        lines: dict[tuple[int, int], int] = {}
        events = []
        for number, raw in enumerate(self.events, start=1):
            process = (raw["rank"], raw["restart"])
            lines[process] = lines.get(process, 0) + 1
            told = {name: value for name, value in raw.items() if name != "passed_ns"}
            events.append(Event(seq=lines[process], t_ns=number * 1_000_000 + raw.get("passed_ns", 0), **told))
        outcome = Outcome(
            exit_code=None if timed_out else exit_code,
            timed_out=timed_out,
            started_ns=0,
            ended_ns=len(events) * 1_000_000 + self.passed_ns,
            leftovers=leftovers,
            agent_exits=tuple(self.agent_exits),
            asked=tuple(self.asked),
        )
        return History(self.plan, outcome, tuple(events), dict(self.stacks), damaged=self.damaged)


def baseline(ranks: int = 2, steps: int = 12, **changes: Any) -> Baseline:
    """The fault-free run of the same job."""
    every = range(1, steps + 1)
    sent: dict[int, dict[str, Any]] = {step: {"backward": [["all_reduce", "SUM", 500, "float32"]]} for step in every}
    fields: dict[str, Any] = {
        "collectives": dict.fromkeys(range(ranks), sent),
        "repeatable": True,
        "final": digests(steps),
        "updates": {
            rank: {s: {**digests(s), **generators(rank, s), "lr": "[0.1]"} for s in every} for rank in range(ranks)
        },
        "starts": {rank: digests(0) for rank in range(ranks)},
        "sample_ids": {rank: {step: sample_ids(step, rank, ranks) for step in every} for rank in range(ranks)},
    }
    return Baseline(**fields | changes)
