"""What each DataLoader handed out: epoch, batch number, sample ids; and loaders made shorter by a fault.

Ids are what the batch sampler gave (``_next_index``). With loader workers they are drawn ahead of the batches, in the
same order, so a queue per iterator pairs them again.
"""

from __future__ import annotations

import functools
import itertools
import json
import operator
import sys
import threading
import weakref
from collections import Counter, deque
from dataclasses import dataclass
from typing import Any

from torch.utils.data import DataLoader, RandomSampler
from torch.utils.data.dataloader import _BaseDataLoaderIter

from harness.faults.batch import BatchFault
from harness.rank.bad_batches import with_faults
from harness.rank.batches import Batch
from harness.rank.calls import site_of
from harness.rank.declared import num_padded, num_samples
from harness.rank.recorder import Recorder
from harness.rank.reference import Reference
from harness.rank.steps import Steps
from harness.rank.triggers import Triggers
from harness.wire import Kind


@dataclass(slots=True)
class _Pass:
    """One iteration over one DataLoader."""

    loader: int
    epoch: int
    limit: int | None
    draws_once: bool  # else its sampler may give a sample again, and ids say nothing
    batches: int = 0
    has_ended: bool = False


ASIDE = ',"aside":true'  # of a batch that was read by a thread beside the training

# Attributes of an iterator: its pass, and what it drew and did not hand out yet.
_PASS, _DRAWN = "_chaos_pass", "_chaos_drawn"


def install(recorder: Recorder, triggers: Triggers, steps: Steps, reference: Reference | None = None) -> None:
    """Record every DataLoader of this process from now on; ask ``reference`` what is true of each evaluation."""
    numbers: weakref.WeakKeyDictionary[Any, tuple[int, str | None]] = weakref.WeakKeyDictionary()  # and lines
    passes_begun: Counter[int] = Counter()  # of each data set: some scripts make a new loader for each epoch
    data_sets: dict[int, int] = {}  # the number of each; one that is gone may give it to another
    loaders: Any = DataLoader  # Any: methods are replaced
    make, counter = loaders.__init__, itertools.count()
    iterators: Any = _BaseDataLoaderIter
    iterate, next_batch = loaders.__iter__, iterators.__next__
    next_index, reset = iterators._next_index, iterators._reset
    main_thread = threading.main_thread().ident
    if triggers.waiting(BatchFault):
        next_batch = with_faults(next_batch, triggers, steps, _Books())

    @functools.wraps(make)
    def number(loader: Any, *args: Any, **kwargs: Any) -> None:
        # By construction, not by first use: rank 0 may use a loader alone, to evaluate before it trains.
        if not steps.is_unseen:
            numbers[loader] = next(counter), site_of(sys._getframe(1))
        make(loader, *args, **kwargs)

    @functools.wraps(iterate)
    def begin(loader: Any) -> Any:
        iterator = iterate(loader)
        if steps.is_unseen:
            return iterator
        count = passes_begun[id(loader.dataset)]
        passes_begun[id(loader.dataset)] += 1
        epoch = getattr(loader.sampler, "epoch", None)
        epoch = int(epoch) if isinstance(epoch, int) else count
        try:
            length = len(loader)
        except TypeError:  # an iterable data set need not know
            length = None
        is_distributed = hasattr(loader.sampler, "num_replicas")
        made, site = numbers[loader]
        recorder.emit(
            Kind.LOADER,
            loader=made,
            site=site,
            epoch=epoch,
            length=length,
            distributed=is_distributed,
            data=data_sets.setdefault(id(loader.dataset), len(data_sets)),
            samples=num_samples(loader),
            padding=num_padded(loader),
        )
        limit = None if length is None else triggers.at_loader(epoch, length)
        iterator.__dict__[_PASS] = _Pass(
            loader=made,
            epoch=epoch,
            limit=limit if limit != length else None,
            draws_once=_draws_once(loader.sampler),
        )
        return iterator

    @functools.wraps(next_batch)
    def load(iterator: Any) -> Any:
        current: _Pass | None = iterator.__dict__.get(_PASS)
        if current is None:  # made by someone who did not go through __iter__
            return next_batch(iterator)
        is_main = threading.get_ident() == main_thread
        if is_main and recorder.phase != "load_batch":  # a thread that reads ahead is not where the script is
            steps.enter("load_batch")
        if current.batches == current.limit:
            _end(current, iterator)
            raise StopIteration
        steps.is_reading = is_main
        try:
            batch = next_batch(iterator)
        except StopIteration:
            _end(current, iterator)
            raise
        finally:
            steps.is_reading = False
        queue = iterator.__dict__.get(_DRAWN)
        drawn = queue.popleft() if queue else None
        ids = _ids(drawn) if drawn is not None and current.draws_once else None
        recorder.emit_encoded(
            Kind.BATCH,
            f',"loader":{current.loader},"epoch":{current.epoch},"index":{current.batches},"ids":{ids or "null"}'
            f"{'' if is_main else ASIDE}",
        )
        current.batches += 1
        steps.batch_loaded(Batch.of(current.loader, current.epoch, ids, batch), batch)
        return batch

    def _end(current: _Pass, iterator: Any) -> None:
        if current.has_ended:
            return
        current.has_ended = True
        recorder.emit(Kind.LOADER_END, loader=current.loader, epoch=current.epoch, batches=current.batches)
        if threading.get_ident() != main_thread:
            return
        steps.loader_ended(current.loader)
        if reference is not None and (model := steps.model_evaluated_on(current.loader)) is not None:
            reference.ask(model, iterator._dataset)

    @functools.wraps(next_index)
    def draw(iterator: Any) -> Any:
        index = next_index(iterator)
        iterator.__dict__.setdefault(_DRAWN, deque()).append(index)
        return index

    @functools.wraps(reset)
    def begin_again(iterator: Any, *args: Any, **kwargs: Any) -> Any:
        iterator.__dict__.pop(_DRAWN, None)  # a kept iterator of persistent workers: what it drew ahead is gone
        return reset(iterator, *args, **kwargs)

    loaders.__init__, loaders.__iter__ = number, begin
    iterators.__next__, iterators._next_index, iterators._reset = load, draw, begin_again


class _Books:
    """See harness.rank.bad_batches.Bookkeeping."""

    def pass_of(self, iterator: Any) -> _Pass | None:
        current: _Pass | None = iterator.__dict__.get(_PASS)
        return current

    def drawn_by(self, iterator: Any) -> deque[Any]:
        drawn: deque[Any] = iterator.__dict__.setdefault(_DRAWN, deque())
        return drawn

    def ids_of(self, iterator: Any, drawn: Any) -> list[int] | None:
        ids = _ids(drawn) if iterator.__dict__[_PASS].draws_once else None
        return None if ids is None else list(json.loads(ids))


def _draws_once(sampler: Any) -> bool:
    """Whether a pass gives no sample again, as far as the sampler says; torch's own random one can be told to."""
    if isinstance(sampler, RandomSampler):
        return not sampler.replacement and sampler.num_samples <= len(sampler.data_source)
    return not getattr(sampler, "replacement", False)


def _ids(index: Any) -> str | None:
    """The sample ids of one drawn index as JSON: a batch's list, or a single one without batching; None if no integers.

    Encoded here, for they are written twice: of the batch, and of the update that it is used in.
    """
    if type(index) is list and {*map(type, index)} == {int}:  # as a rule
        return str(index)
    if (to_list := getattr(index, "tolist", None)) is not None:  # an array of numpy's, a tensor
        index = to_list()
    drawn = list(index) if isinstance(index, (list, tuple)) else [index]
    if not {*map(type, drawn)} <= {int}:
        try:
            drawn = [*map(operator.index, drawn)]
        except (TypeError, ValueError):
            return None
    return str(drawn)
