"""Which samples a rank reads: known values, torch's own sampler, and what is left of an epoch after a resume."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DistributedSampler

from harness._tests.workload_runs import names_of

SIZES = [(n, ranks) for n in (0, 1, 2, 5, 7, 10, 23) for ranks in (1, 2, 3, 4, 8)]


def by_torch(n: int, ranks: int, rank: int, *, epoch: int = 0, **options: Any) -> list[int]:
    data: Any = range(n)
    sampler: DistributedSampler[int] = DistributedSampler(data, ranks, rank, **options)
    sampler.set_epoch(epoch)
    return [*sampler]


def by_hand(
    n: int, ranks: int, rank: int, *, epoch: int = 0, shuffle: bool, drop_last: bool, seed: int = 0
) -> list[int]:
    """Shuffle, pad by the first ones or drop the last ones until all ranks have equally many, and deal out in turn."""
    order = (
        torch.randperm(n, generator=torch.Generator().manual_seed(seed + epoch)).tolist() if shuffle else [*range(n)]
    )
    if drop_last and n % ranks:
        order = order[: n - n % ranks] if n >= ranks else []
    elif order:
        order = (order * ranks)[: -(-n // ranks) * ranks]
    return order[rank::ranks]


@pytest.mark.parametrize(
    ("n", "ranks", "drop_last", "shards"),
    [
        pytest.param(7, 3, False, [[0, 3, 6], [1, 4, 0], [2, 5, 1]], id="7 on 3 ranks: the first two are repeated"),
        pytest.param(7, 3, True, [[0, 3], [1, 4], [2, 5]], id="7 on 3 ranks: the last one is dropped"),
        pytest.param(2, 4, False, [[0], [1], [0], [1]], id="2 on 4 ranks: all are repeated"),
        pytest.param(5, 2, False, [[0, 2, 4], [1, 3, 0]], id="5 on 2 ranks: the first is repeated"),
        pytest.param(0, 2, False, [[], []], id="none"),
        pytest.param(10, 4, False, [[0, 4, 8], [1, 5, 9], [2, 6, 0], [3, 7, 1]], id="10 on 4 ranks"),
    ],
)
def test_known_shards(n: int, ranks: int, drop_last: bool, shards: list[list[int]]) -> None:
    for rank in range(ranks):
        assert by_torch(n, ranks, rank, shuffle=False, drop_last=drop_last) == shards[rank]
        assert by_hand(n, ranks, rank, shuffle=False, drop_last=drop_last) == shards[rank]


@pytest.mark.parametrize(("n", "ranks"), SIZES)
@pytest.mark.parametrize("shuffle", [False, True])
def test_the_rule_is_torchs_own(n: int, ranks: int, shuffle: bool) -> None:
    for drop_last in (False, True):
        for epoch in (0, 3):
            options = {"epoch": epoch, "shuffle": shuffle, "drop_last": drop_last}
            for rank in range(ranks):
                assert by_torch(n, ranks, rank, **options) == by_hand(n, ranks, rank, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(("n", "ranks"), SIZES)
def test_all_ranks_together_read_each_sample_once_but_for_padding(n: int, ranks: int) -> None:
    read = Counter(i for rank in range(ranks) for i in by_torch(n, ranks, rank, epoch=1))
    assert read.keys() == {*range(n)}
    assert read.total() - n == -n % ranks


@pytest.mark.parametrize("rank", [3, 4, -1])
def test_a_rank_that_is_none_is_refused_before_any_communication(rank: int) -> None:
    assert not torch.distributed.is_initialized()
    with pytest.raises(ValueError, match=r"should be in the interval \[0, 2\]"):
        by_torch(7, 3, rank)


def test_another_epoch_is_another_order_on_all_ranks_and_without_set_epoch_it_is_the_same() -> None:
    first, second, forgotten = ([by_torch(16, 2, rank, epoch=epoch) for rank in range(2)] for epoch in (0, 1, 0))
    assert first != second
    assert sorted(first[0] + first[1]) == sorted(second[0] + second[1]) == [*range(16)]
    assert forgotten == first  # which reads each sample once as well: coverage alone tells nothing


def test_seeds_that_differ_between_ranks_lose_samples() -> None:
    read = {i for rank in range(4) for i in by_torch(100, 4, rank, seed=rank)}
    assert (len(read), 100 - len(read)) == (72, 28)
    read = {i for rank in range(2) for i in by_torch(16, 2, rank, seed=rank)}
    assert (len(read), 16 - len(read)) == (12, 4)


# -- what is left of an epoch ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def resumable(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The workloads' sampler."""
    return names_of("ddp_mlp", tmp_path_factory.mktemp("names"))["ResumableSampler"]


def rest(resumable: Any, n: int, ranks: int, rank: int, epoch: int, position: int, seed: int = 0) -> list[int]:
    sampler = resumable(range(n), ranks, rank, seed=seed)
    sampler.set_epoch(epoch)
    sampler.position = position
    assert len(sampler) == len([*sampler])
    return [*sampler]


@pytest.mark.parametrize("epoch", [0, 1, 2])
@pytest.mark.parametrize(("n", "ranks"), [(16, 2), (10, 4), (7, 3)])
def test_before_and_after_a_resume_an_epoch_is_read_once(resumable: Any, n: int, ranks: int, epoch: int) -> None:
    for rank in range(ranks):
        whole = by_torch(n, ranks, rank, epoch=epoch)
        for position in range(len(whole) + 1):
            assert whole[:position] + rest(resumable, n, ranks, rank, epoch, position) == whole


def test_two_resumes_in_one_epoch_leave_the_same_as_one(resumable: Any) -> None:
    sampler = resumable(range(16), 2, 1, seed=0)
    sampler.set_epoch(2)
    read: list[int] = []
    for count in (3, 2, 3):  # each launch reads some more, and counts from where it began
        sampler.position = len(read)
        read += [*sampler][:count]
    assert read == by_torch(16, 2, 1, epoch=2)


def test_known_orders_of_a_seed(resumable: Any) -> None:
    assert rest(resumable, 10, 2, 0, epoch=0, position=0, seed=42) == [2, 1, 4, 0, 3]
    assert rest(resumable, 10, 2, 0, epoch=0, position=1, seed=42) == [1, 4, 0, 3]
    assert rest(resumable, 10, 2, 0, epoch=1, position=0, seed=42) == [8, 9, 5, 6, 2]


def test_a_position_in_another_epochs_order_reads_some_twice_and_loses_as_many(resumable: Any) -> None:
    consumed = [i for rank in range(2) for i in by_torch(16, 2, rank, epoch=1)[:4]]
    wrong = [i for rank in range(2) for i in rest(resumable, 16, 2, rank, epoch=0, position=4)]
    assert len({*consumed} & {*wrong}) == len({*range(16)} - {*consumed, *wrong}) == 4


def test_of_a_position_that_counts_steps_other_numbers_of_ranks_make_something_else() -> None:
    """24 samples, one a step: 3 steps of 4 ranks are 12 samples, and of 2 ranks are 6."""
    order = by_torch(24, 1, 0)
    consumed = order[: 3 * 4]
    after_steps, after_samples = order[3 * 2 :], order[12:]
    assert len({*consumed} & {*after_steps}) == 6
    assert len({*consumed} & {*after_samples}) == 0
    fewer = order[: 6 * 2]
    assert len({*order} - {*fewer, *order[6 * 4 :]}) == 12


def test_the_data_sets_of_the_workloads_pad_nothing_on_two_ranks(tmp_path: Path) -> None:
    for name in ("ddp_mlp", "lm_tokens", "mixed_precision", "batch_norm"):
        assert len(names_of(name, tmp_path / name)["dataset"]) % 2 == 0
