"""What a DataLoader and its sampler say of the samples that one pass hands out."""

from __future__ import annotations

from typing import Any

from torch.utils.data import RandomSampler, SubsetRandomSampler, WeightedRandomSampler


def num_samples(loader: Any) -> int | None:
    """How many samples a whole pass is about, all ranks together: their ids are 0 to that; None: it does not say.

    It is the data set's length, unless the sampler is one that makes a choice of its own.
    """
    sampler = loader.sampler
    try:
        length = len(loader.dataset)
    except (TypeError, NotImplementedError):  # an iterable one need not know
        return None
    if isinstance(sampler, (SubsetRandomSampler, WeightedRandomSampler)):
        return None
    if isinstance(sampler, RandomSampler) and (sampler.replacement or sampler.num_samples != length):
        return None
    if getattr(sampler, "dataset", loader.dataset) is not loader.dataset:
        return None  # it divides something else, another sampler's numbers perhaps
    return length


def num_padded(loader: Any) -> int:
    """How many samples may come once too often in a pass, all ranks together, so that each gets as many."""
    sampler, batch_sampler = loader.sampler, loader.batch_sampler
    if getattr(batch_sampler, "even_batches", False):  # accelerate: begins anew until the last batches are full
        return int(batch_sampler.batch_size or 1) * int(getattr(batch_sampler, "num_processes", 1)) - 1
    try:
        return max(0, int(sampler.total_size) - len(sampler.dataset))
    except (AttributeError, TypeError):
        return 0
