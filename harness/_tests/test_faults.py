"""Fault kinds: what they do to a process, a call, a loader, a write, and when the records prove that they did."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest

from harness.faults import KINDS, load_fault
from harness.faults.abort_group import AbortGroup
from harness.faults.base import (
    PLACES,
    At,
    CollectiveFault,
    Fault,
    LastingFault,
    LoaderFault,
    PointFault,
    WriteFault,
)
from harness.faults.batch import BatchFault
from harness.faults.change_reduction import ChangeReduction
from harness.faults.corrupt_collective import CorruptCollective
from harness.faults.corrupt_sample import CorruptSample
from harness.faults.damage_file import DamageFile
from harness.faults.delay_collective import DelayCollective
from harness.faults.double_collective import DoubleCollective
from harness.faults.drift_buffer import DriftBuffer
from harness.faults.exit import Exit
from harness.faults.extra_collective import ExtraCollective
from harness.faults.files import FilesFault
from harness.faults.flip_bit import FlipBit
from harness.faults.hang import Hang
from harness.faults.kill import Kill
from harness.faults.lose_batch import LoseBatch
from harness.faults.move_latest import MoveLatest
from harness.faults.nan_batch import NanBatch
from harness.faults.out_of_memory import OutOfMemory
from harness.faults.overflow import Overflow
from harness.faults.raise_ import Raise
from harness.faults.repeat_batch import RepeatBatch
from harness.faults.resize_collective import ResizeCollective
from harness.faults.retype_collective import RetypeCollective
from harness.faults.scale_lr import ScaleLr
from harness.faults.short_loader import ShortLoader
from harness.faults.skip_backward import SkipBackward
from harness.faults.skip_collective import SkipCollective
from harness.faults.skip_load import SkipLoad
from harness.faults.skip_save import SkipSave
from harness.faults.skip_unscale import SkipUnscale
from harness.faults.skip_update import SkipUpdate
from harness.faults.stalled_read import StalledRead
from harness.faults.straggle import Straggle
from harness.faults.swap_collective import SwapCollective
from harness.faults.torn import Torn
from harness.faults.work import WorkFault
from harness.wire import Event, Kind

ONE_OF_EACH: list[Fault] = [
    AbortGroup(rank=1, at=At(step=3, collective=2)),
    ChangeReduction(rank=1, at=At(step=3, collective=2), reduce_op="MIN"),
    CorruptCollective(rank=1, at=At(step=3, collective=2), side="sent", index=4, bit=30),
    CorruptSample(rank=1, at=At(step=3), sample=2, factor=9.0),
    DamageFile(rank=0, at=At(phase="load", restart=1), file="model.pt", how="page", checkpoint=5),
    DelayCollective(rank=1, at=At(step=3, collective=2), duration_s=0.5),
    DoubleCollective(rank=1, at=At(step=3, collective=2)),
    DriftBuffer(rank=0, at=At(step=3), amount=0.25, name="1.running_mean"),
    Exit(rank=1, at=At(step=3), code=0, how="sys.exit"),
    ExtraCollective(rank=[0, 2], at=At(collective=2, step=3), numel=7),
    FlipBit(rank=1, at=At(step=3), part="optimizer", bit=30, name="exp_avg", index=4),
    Hang(rank=1, at=At(step=3, phase="forward"), how="lock"),
    Kill(rank="last", at=At(phase="load", restart=1), signal="SIGTERM", grace_s=2.5),
    LoseBatch(rank=1, at=At(epoch=1, hit=2)),
    MoveLatest(rank=0, at=At(phase="load", restart=1), to="behind"),
    NanBatch(rank=1, at=At(step=3, hit=2)),
    OutOfMemory(rank=1, at=At(step=3), headroom_bytes=64 << 20),
    Overflow(rank=1, at=At(step=3), gradient="local"),
    Raise(rank="nonzero", at=At(step=3, phase="forward"), message="out of luck"),
    RepeatBatch(rank=1, at=At(step=3)),
    ResizeCollective(rank=1, at=At(step=3, phase="backward"), numel=3),
    RetypeCollective(rank=1, at=At(step=3, collective=2), dtype="int32"),
    ScaleLr(rank=1, at=At(step=3), factor=2.0),
    ShortLoader(rank=1, at=At(epoch=1, hit=2), batches=2),
    SkipBackward(rank=1, at=At(step=3)),
    SkipCollective(rank="all", at=At(collective=9)),
    SkipLoad(rank=1, at=At(phase="load", restart=1)),
    SkipSave(rank=1, at=At(phase="save", hit=2)),
    SkipUnscale(rank=1, at=At(step=3)),
    SkipUpdate(rank="nonzero", at=At(step=3)),
    StalledRead(rank=1, at=At(step=3), duration_s=0.5),
    Straggle(rank=1, at=At(step=3), duration_s=0.5, updates=4),
    SwapCollective(rank=1, at=At(step=3, collective=2)),
    Torn(rank=0, at=At(failpoint="ckpt.shard.write"), fraction=0.25),
]


def event(kind: Kind, *, seq: int = 2, step: int = 3, **data: Any) -> Event:
    return Event(rank=1, restart=0, seq=seq, t_ns=seq, kind=kind, step=step, phase="forward", data=data)


def fired(**data: Any) -> Event:
    return event(Kind.FAULT, seq=1, index=0, fault="any", effect="in words", **data)


def effect(**measured: Any) -> Event:
    return event(Kind.EFFECT, index=0, fault="any", **measured)


def collective(faulted: str | None = None, numel: int = 4) -> Event:
    marks = {} if faulted is None else {"faulted": faulted}
    return Event(1, 0, 2, 2, Kind.COLLECTIVE, 3, "forward", {"op": "all_reduce", "numel": numel, **marks})


def test_every_kind_is_found_and_tried_here() -> None:
    assert [fault.kind for fault in ONE_OF_EACH] == list(KINDS)


@pytest.mark.parametrize("fault", ONE_OF_EACH, ids=lambda fault: fault.kind)
def test_a_fault_comes_back_from_what_a_plan_stores(fault: Fault) -> None:
    assert load_fault(dataclasses.asdict(fault)) == fault


@pytest.mark.parametrize("cls", KINDS.values(), ids=KINDS)
def test_a_kind_belongs_to_one_family_and_says_what_it_certifies(cls: type[Fault]) -> None:
    families = (
        PointFault,
        LastingFault,
        FilesFault,
        CollectiveFault,
        LoaderFault,
        BatchFault,
        WorkFault,
        WriteFault,
    )
    assert sum(issubclass(cls, family) for family in families) == 1
    assert cls.places
    assert cls.places <= set(PLACES)
    for text in (cls.certifies, cls.does_not_certify, cls.__doc__):
        assert text
        assert len(text) > 20


TARGETS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "a number is that rank": (2, (2,)),
    "a list is sorted": ([3, 1], (1, 3)),
    "all": ("all", (0, 1, 2, 3)),
    "nonzero leaves out rank 0": ("nonzero", (1, 2, 3)),
    "last": ("last", (3,)),
}


@pytest.mark.parametrize(("rank", "expected"), TARGETS.values(), ids=TARGETS)
def test_targets_of_four_ranks(rank: Any, expected: tuple[int, ...]) -> None:
    assert Kill(rank=rank).targets(4) == expected


ENDS = {
    "SIGKILL": (Kill(rank=0), -9, ""),
    "SIGABRT": (Kill(rank=0, signal="SIGABRT"), -6, ""),
    "SIGSEGV": (Kill(rank=0, signal="SIGSEGV"), -11, ""),
    "os._exit runs no finally": (Exit(rank=0, code=7), 7, ""),
    "os._exit with 0": (Exit(rank=0), 0, ""),
    "sys.exit unwinds": (Exit(rank=0, code=7, how="sys.exit"), 7, "unwound"),
    "an exception unwinds": (Raise(rank=0, message="out of luck"), 1, "unwound"),
}


@pytest.mark.parametrize(("fault", "code", "said"), ENDS.values(), ids=ENDS)
def test_firing_ends_a_real_process(fault: PointFault, code: int, said: str) -> None:
    program = (
        "import json, sys\n"
        "from harness.faults import load_fault\n"
        "fault = load_fault(json.loads(sys.argv[1]))\n"
        "try:\n"
        "    fault.fire()\n"
        "    print('went on', flush=True)\n"
        "finally:\n"
        "    print('unwound', end='', flush=True)\n"
        "sys.exit(99)\n"
    )
    text = json.dumps(dataclasses.asdict(fault))
    done = subprocess.run([sys.executable, "-c", program, text], capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stdout) == (code, said)
    assert fault.ends_rank
    if isinstance(fault, Raise):
        assert "harness.errors.InjectedFault: out of luck" in done.stderr


class FakeCall:
    """Writes down what a fault does with a call."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def issue(self) -> str:
        self.done.append("issue")
        return "work of the collective"

    def completed(self) -> str:
        self.done.append("completed")
        return "work that is done"

    def issue_like(self, numel: int | None = None) -> None:
        self.done.append(f"issue_like {numel}")

    def issue_twice(self) -> str:
        self.done.append("issue_twice")
        return "work of the second"

    def issue_after_the_next(self) -> str:
        self.done.append("issue_after_the_next")
        return "work that is done"

    def issue_in(self, dtype: str) -> str:
        self.done.append(f"issue_in {dtype}")
        return "work that is done"

    def issue_reduced_by(self, reduce_op: str) -> str:
        self.done.append(f"issue_reduced_by {reduce_op}")
        return "work of the collective"

    def issue_flipped(self, side: str, index: int, bit: int) -> str:
        self.done.append(f"issue_flipped {side} {index} {bit}")
        return "work of the collective"

    def issue_aborted(self) -> str:
        self.done.append("issue_aborted")
        return "work of the collective"

    def tell(self, **measured: Any) -> None:
        self.done.append(f"tell {', '.join(measured)}")


CALLS: dict[str, tuple[CollectiveFault, list[str], str]] = {
    "a skipped one is not sent": (SkipCollective(rank=0), ["completed"], "work that is done"),
    "an extra one of the same size comes first": (
        ExtraCollective(rank=0), ["issue_like None", "issue"], "work of the collective"),
    "an extra one of another size comes first": (
        ExtraCollective(rank=0, numel=3), ["issue_like 3", "issue"], "work of the collective"),
    "a double one comes twice": (DoubleCollective(rank=0), ["issue_twice"], "work of the second"),
    "a swapped one waits for the next": (SwapCollective(rank=0), ["issue_after_the_next"], "work that is done"),
    "a late one tells how late, and is sent": (
        DelayCollective(rank=0, duration_s=1e-3), ["tell waited_s", "issue"], "work of the collective"),
    "another dtype": (RetypeCollective(rank=0, dtype="int32"), ["issue_in int32"], "work that is done"),
    "another reduction": (ChangeReduction(rank=0), ["issue_reduced_by MAX"], "work of the collective"),
    "a flipped bit of what came back": (
        CorruptCollective(rank=0, index=3, bit=7), ["issue_flipped received 3 7"], "work of the collective"),
    "one without connections": (AbortGroup(rank=0), ["issue_aborted"], "work of the collective"),
    "a resized one takes its place": (
        ResizeCollective(rank=0, numel=3), ["completed", "issue_like 3"], "work that is done"),
}  # fmt: skip


@pytest.mark.parametrize(("fault", "done", "work"), CALLS.values(), ids=CALLS)
def test_what_a_collective_fault_does_with_the_call(fault: CollectiveFault, done: list[str], work: str) -> None:
    call = FakeCall()
    assert fault.replace(call) == work
    assert call.done == done


def test_a_short_loader_hands_out_fewer_batches_and_never_less_than_none() -> None:
    assert [ShortLoader(rank=0, batches=2).length(n) for n in (6, 2, 1, 0)] == [4, 0, 0, 0]


def test_a_torn_write_is_never_whole() -> None:
    assert [Torn(rank=0, fraction=f).part(1000) for f in (0.0, 0.5, 0.999)] == [0, 500, 999]
    assert Torn(rank=0, fraction=0.999).part(1) == 0


EPOCH = {"epoch": 1, "length": 6}
PROVED: dict[str, tuple[Fault, Event, Sequence[Event]]] = {
    "killed and silent": (Kill(rank=1), fired(), []),
    "raised and left the script": (Raise(rank=1), fired(), [event(Kind.EXCEPTION, type="InjectedFault", message="")]),
    "raised in a save, which gave up": (
        Raise(rank=1, message="disk"), fired(), [event(Kind.SAVE_ERROR, path="p", error="InjectedFault: disk")]),
    "raised in a load, which was refused": (
        Raise(rank=1, message="disk"), fired(), [event(Kind.EXCEPTION, type="LoadRefused", message="x: disk")]),
    "raised in a load, and ended before its last word": (
        Raise(rank=1, message="disk"), fired(), [event(Kind.LOAD_ERROR, path="p", error="InjectedFault: disk")]),
    "left by os._exit": (Exit(rank=1), fired(), []),
    "left by os._exit with a last word": (Exit(rank=1, code=3), fired(), [event(Kind.EXIT, code=3)]),
    "left by sys.exit": (Exit(rank=1, code=3, how="sys.exit"), fired(), [event(Kind.EXIT, code=3)]),
    "skipped": (SkipCollective(rank=1), fired(), [collective("skipped"), collective()]),
    "sent an extra one": (ExtraCollective(rank=1), fired(), [collective("extra"), collective()]),
    "sent an extra one of its size": (ExtraCollective(rank=1, numel=9), fired(), [collective("extra", 9)]),
    "sent one of another size": (
        ResizeCollective(rank=1, numel=9), fired(), [collective("skipped"), collective("extra", 9)]),
    "sent twice": (DoubleCollective(rank=1), fired(), [collective(), collective("extra")]),
    "sent after the next one": (SwapCollective(rank=1), fired(), [collective(), effect(before_it=5), collective()]),
    "sent late": (DelayCollective(rank=1, duration_s=0.5), fired(), [effect(waited_s=0.51), collective()]),
    "ended before it was sent": (DelayCollective(rank=1, duration_s=0.5), fired(), []),
    "sent in another dtype": (
        RetypeCollective(rank=1, dtype="int32"), fired(), [effect(before="float32", after="int32"), collective()]),
    "reduced by another operation": (ChangeReduction(rank=1), fired(), [effect(before="SUM", after="MAX")]),
    "corrupt": (CorruptCollective(rank=1), fired(), [effect(tensor="what was sent", elements=1)]),
    "sent without connections": (AbortGroup(rank=1), fired(), [effect(connections=2, communicators=0), collective()]),
    "a loader two batches short": (
        ShortLoader(rank=1, batches=2), fired(**EPOCH), [event(Kind.LOADER_END, loader=0, epoch=1, batches=4)]),
    "torn and silent": (Torn(rank=1), fired(size_bytes=10, part_bytes=5), []),
}  # fmt: skip


@pytest.mark.parametrize(("fault", "at", "after"), PROVED.values(), ids=PROVED)
def test_the_records_prove_it(fault: Fault, at: Event, after: Sequence[Event]) -> None:
    assert fault.missing_effect(at, after) is None


UNPROVED: dict[str, tuple[Fault, Event, Sequence[Event], str]] = {
    "killed, but it went on": (Kill(rank=1), fired(), [event(Kind.BATCH)], "the process went on after kill: batch"),
    "raised, but caught": (Raise(rank=1), fired(), [event(Kind.UPDATE)], "was it caught there?"),
    "raised, but another one left": (
        Raise(rank=1), fired(), [event(Kind.EXCEPTION, type="ValueError", message="x")], "no InjectedFault left"),
    "raised in a save that failed of something else": (
        Raise(rank=1, message="disk"), fired(), [event(Kind.SAVE_ERROR, path="p", error="EIO")], "no InjectedFault"),
    "os._exit, but it went on": (Exit(rank=1, code=3), fired(), [event(Kind.UPDATE)], "went on after os._exit(3)"),
    "os._exit, but with another code": (Exit(rank=1, code=3), fired(), [event(Kind.EXIT, code=0)], "left with code 0"),
    "sys.exit, but caught": (Exit(rank=1, how="sys.exit"), fired(), [event(Kind.UPDATE)], "was SystemExit caught"),
    "sys.exit, but with another code": (
        Exit(rank=1, how="sys.exit", code=3), fired(), [event(Kind.EXIT, code=1)], "left with code 1"),
    "skipped, but sent": (SkipCollective(rank=1), fired(), [collective()], "no skipped collective is on record"),
    "extra, but none": (ExtraCollective(rank=1), fired(), [collective()], "no extra collective is on record"),
    "extra, but of another size": (
        ExtraCollective(rank=1, numel=9), fired(), [collective("extra", 4)], "has 4 elements, not 9"),
    "resized, but sent as well": (ResizeCollective(rank=1, numel=9), fired(), [collective("extra", 9)], "no skipped"),
    "resized to what it was": (
        ResizeCollective(rank=1, numel=9),
        fired(),
        [collective("skipped", 9), collective("extra", 9)],
        "has 9 elements without the fault: choose another numel",
    ),
    "resized, but not sent": (ResizeCollective(rank=1, numel=9), fired(), [collective("skipped")], "no extra"),
    "twice, but once": (DoubleCollective(rank=1), fired(), [collective()], "no extra"),
    "swapped, but the last of its group": (
        SwapCollective(rank=1), fired(), [event(Kind.EXIT, code=0)], "it was never sent"),
    "late, but not late enough": (
        DelayCollective(rank=1, duration_s=0.5), fired(), [effect(waited_s=0.1)], "was 0.100 s late, not 0.5"),
    "late, but it went on": (DelayCollective(rank=1, duration_s=0.5), fired(), [collective()], "had not ended"),
    "another dtype, but not on record": (RetypeCollective(rank=1, dtype="int32"), fired(), [], "nothing is on record"),
    "another dtype, but it had it": (
        RetypeCollective(rank=1, dtype="int32"), fired(), [effect(before="int32", after="int32")],
        "had dtype int32 already"),
    "another dtype of nothing": (
        RetypeCollective(rank=1, dtype="int32"), fired(), [effect(before=None, after="int32")], "has no dtype"),
    "another reduction of what reduces nothing": (
        ChangeReduction(rank=1), fired(), [effect(before=None, after="MAX")], "has no reduce operation"),
    "aborted, but nothing is told": (AbortGroup(rank=1), fired(), [collective()], "nothing is on record"),
    "aborted, but there was no connection": (
        AbortGroup(rank=1), fired(), [effect(connections=0, communicators=0)], "no connection to a peer"),
    "aborted, but it went on": (
        AbortGroup(rank=1), fired(), [effect(connections=1, communicators=0), event(Kind.UPDATE)], "went on without"),
    "corrupt, but nothing there": (CorruptCollective(rank=1), fired(), [effect(problem="there is no x")], "is no x"),
    "corrupt, but as it was": (
        CorruptCollective(rank=1), fired(), [effect(tensor="what was sent", elements=0)], "sent did not change"),
    "a short loader that was empty": (ShortLoader(rank=1), fired(epoch=1, length=0), [], "was empty"),
    "a short loader without an end": (ShortLoader(rank=1), fired(**EPOCH), [], "did not come to an end"),
    "a short loader whose other epoch ended": (
        ShortLoader(rank=1), fired(**EPOCH), [event(Kind.LOADER_END, loader=0, epoch=0, batches=5)], "did not come to"),
    "a short loader at full length": (
        ShortLoader(rank=1), fired(**EPOCH), [event(Kind.LOADER_END, loader=0, epoch=1, batches=6)], "out 6 of 6"),
    "torn, but whole": (Torn(rank=1), fired(size_bytes=10, part_bytes=10), [], "was not torn"),
    "torn, but nothing to tear": (Torn(rank=1), fired(size_bytes=0, part_bytes=0), [], "was not torn"),
    "torn, but it went on": (
        Torn(rank=1), fired(size_bytes=10, part_bytes=5), [event(Kind.SAVE_END, path="p")], "went on after torn"),
}  # fmt: skip


@pytest.mark.parametrize(("fault", "at", "after", "said"), UNPROVED.values(), ids=UNPROVED)
def test_the_records_do_not_prove_it(fault: Fault, at: Event, after: Sequence[Event], said: str) -> None:
    missing = fault.missing_effect(at, after)
    assert missing is not None
    assert said in missing


BARRIER, BUCKET = ["barrier", None, None, None], ["all_reduce", "SUM", 10, "float32"]
ACTS_ON: dict[str, tuple[CollectiveFault, list[list[Any]], bool]] = {
    "a dtype of what has one": (RetypeCollective(rank=0, dtype="int32"), [BUCKET], True),
    "the dtype that it has": (RetypeCollective(rank=0, dtype="float32"), [BUCKET], False),
    "a dtype of a barrier": (RetypeCollective(rank=0, dtype="int32"), [BARRIER], False),
    "a reduction of a sum": (ChangeReduction(rank=0), [BUCKET], True),
    "a reduction of a barrier": (ChangeReduction(rank=0), [BARRIER], False),
    "a bit of a barrier": (CorruptCollective(rank=0), [BARRIER], False),
    "the connections under a barrier": (AbortGroup(rank=0), [BARRIER], True),
}


@pytest.mark.parametrize(("fault", "calls", "does"), ACTS_ON.values(), ids=ACTS_ON)
def test_a_fault_of_a_collective_says_whether_it_changes_anything(
    fault: CollectiveFault, calls: list[list[Any]], does: bool
) -> None:
    assert fault.acts_on(calls, 1) == does
