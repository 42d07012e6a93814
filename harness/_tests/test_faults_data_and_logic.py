"""Faults on a batch and on a piece of work: when the records prove that they had their effect."""

from __future__ import annotations

from typing import Any

import pytest

from harness.faults import At, Fault
from harness.faults.corrupt_sample import CorruptSample
from harness.faults.drift_buffer import DriftBuffer
from harness.faults.flip_bit import FlipBit
from harness.faults.lose_batch import LoseBatch
from harness.faults.nan_batch import NanBatch
from harness.faults.overflow import Overflow
from harness.faults.repeat_batch import RepeatBatch
from harness.faults.scale_lr import ScaleLr
from harness.faults.skip_backward import SkipBackward
from harness.faults.skip_load import SkipLoad
from harness.faults.skip_save import SkipSave
from harness.faults.skip_unscale import SkipUnscale
from harness.faults.skip_update import SkipUpdate
from harness.faults.stalled_read import StalledRead
from harness.wire import Event, Kind

HERE = At(step=3)
STALL = StalledRead(rank=1, at=HERE, duration_s=0.5)


def event(kind: Kind, *, seq: int = 2, **data: Any) -> Event:
    return Event(rank=1, restart=0, seq=seq, t_ns=seq, kind=kind, step=3, phase="forward", data=data)


def effect(**measured: Any) -> Event:
    return event(Kind.EFFECT, index=4, fault="any", **measured)


FIRED = event(Kind.FAULT, seq=1, index=4, fault="any", effect="in words")
OF_ANOTHER = event(Kind.EFFECT, index=0, fault="any", elements=1, tensors=1, params="p", gradients=1)
BATCH = event(Kind.BATCH, loader=0, epoch=0, index=2, ids=[7, 8])
NEXT_PHASE = event(Kind.PHASE)


def update(params: str = "p", lr: float = 0.2) -> Event:
    return event(Kind.UPDATE, params=params, lr=[lr])


PROVED: dict[str, tuple[Fault, list[Event]]] = {
    "a batch of NaN": (NanBatch(rank=1), [OF_ANOTHER, effect(tensors=2, elements=8), BATCH]),
    "a corrupt sample": (CorruptSample(rank=1), [effect(tensors=2, elements=5), BATCH]),
    "a stall": (STALL, [effect(stalled_s=0.51), BATCH]),
    "a stall in which the rank was ended": (STALL, []),
    "a batch again": (RepeatBatch(rank=1), [effect(is_repeated=True, lost=[1, 2], repeated=[7, 8]), BATCH]),
    "a batch lost": (LoseBatch(rank=1), [effect(lost=[5, 6]), BATCH]),
    "the last batch lost": (LoseBatch(rank=1), [effect(lost=[5, 6]), event(Kind.LOADER_END), BATCH]),
    "a batch lost that has no ids": (LoseBatch(rank=1), [effect(lost=None), event(Kind.BATCH, ids=None)]),
    "no update": (SkipUpdate(rank=1), [effect(params="p"), update("p"), update("q")]),
    "no update, and the rank was ended": (SkipUpdate(rank=1), [effect(params="p")]),
    "another learning rate": (ScaleLr(rank=1, factor=2.0), [effect(usual=[0.1], lr=[0.2]), update(), update(lr=0.1)]),
    "a flipped bit": (FlipBit(rank=1), [effect(tensor="parameter 0.weight", elements=1), update()]),
    "a drifting buffer": (DriftBuffer(rank=1), [effect(tensor="buffer running_mean", elements=8), update()]),
    "no backward": (SkipBackward(rank=1), [effect(params="p"), NEXT_PHASE, event(Kind.COLLECTIVE, op="all_reduce")]),
    "an overflow": (Overflow(rank=1), [effect(gradients=6)]),
    "no save": (SkipSave(rank=1), [effect(params="p"), NEXT_PHASE, event(Kind.SAVE_START)]),
    "no unscaling": (SkipUnscale(rank=1), [effect(params="p"), update()]),
    "no load": (SkipLoad(rank=1), [effect(params="p"), NEXT_PHASE, event(Kind.LOAD)]),
}


@pytest.mark.parametrize(("fault", "after"), PROVED.values(), ids=PROVED)
def test_the_records_prove_it(fault: Fault, after: list[Event]) -> None:
    assert fault.missing_effect(FIRED, after) is None


UNPROVED: dict[str, tuple[Fault, list[Event], str]] = {
    "NaN, but the effect of another fault": (NanBatch(rank=1), [OF_ANOTHER, BATCH], "nothing is on record"),
    "NaN, but integers alone": (
        NanBatch(rank=1), [effect(tensors=2, elements=0), BATCH], "none of the batch's 2 tensors has floating"),
    "NaN, but no tensors": (NanBatch(rank=1), [effect(tensors=0, elements=0), BATCH], "no value of the batch"),
    "NaN, but never handed out": (NanBatch(rank=1), [effect(tensors=1, elements=8)], "no batch was handed out"),
    "a corrupt sample of a shorter batch": (
        CorruptSample(rank=1), [effect(tensors=2, elements=0), BATCH], "it has 2 tensors that can be changed"),
    "a stall cut short": (STALL, [effect(stalled_s=0.2), BATCH], "was stalled for 0.200 s, not 0.5"),
    "a stall that is not there": (STALL, [BATCH], "the stall had not ended"),
    "a stall, and nothing handed out": (STALL, [effect(stalled_s=0.6)], "no batch was handed out"),
    "the first of a pass again": (
        RepeatBatch(rank=1), [effect(is_repeated=False, lost=[7], repeated=[7]), BATCH], "no batch before"),
    "again, but another batch": (
        RepeatBatch(rank=1), [effect(is_repeated=True, lost=[7, 8], repeated=[1, 2]), BATCH], "is not the one before"),
    "lost, but handed out": (LoseBatch(rank=1), [effect(lost=[7, 8]), BATCH], "should be lost was handed out"),
    "lost, and nothing came": (LoseBatch(rank=1), [effect(lost=[5, 6])], "neither a batch nor"),
    "lost, but not on record": (LoseBatch(rank=1), [BATCH], "nothing is on record"),
    "no update, but other parameters": (SkipUpdate(rank=1), [effect(params="p"), update("q")], "parameters changed"),
    "no update, but not on record": (SkipUpdate(rank=1), [update()], "nothing is on record"),
    "a learning rate of zero": (ScaleLr(rank=1, factor=2.0), [effect(usual=[0.0], lr=[0.0])], "changes nothing"),
    "a learning rate that the update did not have": (
        ScaleLr(rank=1, factor=2.0), [effect(usual=[0.1], lr=[0.2]), update(lr=0.1)], "made with 0.1, not 0.2"),
    "a learning rate, but not on record": (ScaleLr(rank=1, factor=2.0), [update()], "nothing is on record"),
    "a bit of no such tensor": (FlipBit(rank=1), [effect(problem="there is no x")], "there is no x"),
    "a bit that is as it was": (
        FlipBit(rank=1), [effect(tensor="parameter 0.weight", elements=0)], "0.weight did not change"),
    "a bit, but not on record": (FlipBit(rank=1), [update()], "nothing is on record"),
    "a drift too small to see": (
        DriftBuffer(rank=1, amount=1e-30), [effect(tensor="buffer b", elements=0)], "buffer b did not change"),
    "no backward, but its collective": (
        SkipBackward(rank=1), [effect(params="p"), event(Kind.COLLECTIVE, op="all_reduce")], "all_reduce was sent"),
    "an overflow of nothing": (Overflow(rank=1), [effect(gradients=0)], "there is none, or"),
    "an overflow, but not on record": (Overflow(rank=1), [update()], "nothing is on record"),
    "no save, but it began": (SkipSave(rank=1), [effect(params="p"), event(Kind.SAVE_START)], "took part in the save"),
    "no unscaling, but not on record": (SkipUnscale(rank=1), [update()], "nothing is on record"),
    "no load, but it loaded": (SkipLoad(rank=1), [effect(params="p"), event(Kind.LOAD)], "took part in the load"),
}  # fmt: skip


@pytest.mark.parametrize(("fault", "after", "said"), UNPROVED.values(), ids=UNPROVED)
def test_the_records_do_not_prove_it(fault: Fault, after: list[Event], said: str) -> None:
    missing = fault.missing_effect(FIRED, after)
    assert missing is not None
    assert said in missing
