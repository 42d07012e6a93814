"""sharded_evaluation: each held-out sample counts once, whatever the number of ranks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from harness._tests.launched import Run
from harness._tests.workload_runs import Changes, Ran, names_of, run_workload


def run_evaluation(
    run: Run, tmp_path: Path, *args: str, ranks: int = 2, changes: Changes = (), fails: bool = False
) -> Ran:
    given = ("--steps", "4", *args)
    return run_workload(run, tmp_path, "sharded_evaluation", *given, ranks=ranks, changes=changes, fails=fails)


def f1(true: Sequence[int], predicted: Sequence[int], one: int) -> float:
    """Of class ``one``: the harmonic mean of precision and recall."""
    hits = sum(t == p == one for t, p in zip(true, predicted, strict=True))
    return 2 * hits / max(1, [*true].count(one) + [*predicted].count(one))


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_its_metrics_are_those_of_one_process_on_all_samples(run: Run, tmp_path: Path, ranks: int) -> None:
    ran = run_evaluation(run, tmp_path, ranks=ranks)
    names = names_of("sharded_evaluation", tmp_path / "names")
    model = names["model"].eval()
    model.load_state_dict(ran.part(4, "model"))
    _, x_NF, y_N = names["held_out"].tensors
    true, predicted = y_N.tolist(), model(x_NF).argmax(dim=1).tolist()
    assert len(true) == 37
    progress = ran.part(4, "progress")
    assert progress["accuracy"] == sum(t == p for t, p in zip(true, predicted, strict=True)) / 37
    assert progress["f1"] == pytest.approx(sum(f1(true, predicted, one) for one in range(3)) / 3, rel=1e-12)
    shards = [([*true[r::ranks]], [*predicted[r::ranks]]) for r in range(ranks)]
    mean_of_ranks = sum(f1(*shard, one) for shard in shards for one in range(3)) / 3 / ranks
    assert ranks == 1 or progress["f1"] != pytest.approx(mean_of_ranks, rel=1e-4)


# Ten samples, of which the first two are predicted wrong and all others right.
PREDICTED = "predicted_B = model(x_BF.to(device)).argmax(dim=1)"
TWO_WRONG = (PREDICTED, "predicted_B = torch.where(id_B < 2, (y_B + 1) % num_classes, y_B)")
PADDED = ("sampler=shard", "sampler=DistributedSampler(held_out, shuffle=False)")
LONE = ("sampler=shard", "sampler=range(rank, 9, world_size)")
UNCHECKED = ("(num_counted_N != 1)", "(num_counted_N < 1)")
DIVIDED_BY_WHAT_WAS_SEEN = ("right_C.sum().item() / args.num_held_out", "(right_C.sum() / confusion_CC.sum()).item()")


def test_two_of_ten_wrong_on_four_ranks_is_0_8(run: Run, tmp_path: Path) -> None:
    ran = run_evaluation(run, tmp_path, "--num-held-out", "10", ranks=4, changes=[TWO_WRONG])
    assert ran.part(4, "progress")["accuracy"] == 0.8


def test_padding_that_counts_twice_would_make_it_0_667(run: Run, tmp_path: Path) -> None:
    changes = [TWO_WRONG, PADDED, UNCHECKED, DIVIDED_BY_WHAT_WAS_SEEN]
    ran = run_evaluation(run, tmp_path, "--num-held-out", "10", ranks=4, changes=changes)
    assert ran.part(4, "progress")["accuracy"] == pytest.approx(8 / 12, rel=1e-12)


@pytest.mark.parametrize(
    ("change", "samples"),
    [
        pytest.param(PADDED, "[0, 1]", id="two are counted twice"),
        pytest.param(LONE, "[9]", id="one is left out"),
    ],
)
def test_samples_that_are_not_counted_once_are_refused_by_number(
    run: Run, tmp_path: Path, change: tuple[str, str], samples: str
) -> None:
    ran = run_evaluation(run, tmp_path, "--num-held-out", "10", ranks=4, changes=[change], fails=True)
    assert f"held-out samples {samples} were not counted once" in ran.printed


def test_with_fewer_samples_than_ranks_some_ranks_have_none(run: Run, tmp_path: Path) -> None:
    ran = run_evaluation(run, tmp_path, "--num-held-out", "2", ranks=4, changes=[TWO_WRONG])
    assert ran.part(4, "progress")["accuracy"] == 0.0
