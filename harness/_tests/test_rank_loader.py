"""Real ranks: what each DataLoader handed out, with and without loader workers, and loaders that end early."""

from __future__ import annotations

import pytest

from harness._tests.launched import Run, shown
from harness.checks import GUARANTEES
from harness.faults.base import At
from harness.faults.short_loader import ShortLoader
from harness.wire import Kind

LOADER = """
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset
dist.init_process_group("gloo")
data = list(range(100, 107))
sampler = DistributedSampler(data, shuffle=False)
"""
# Who leaves while another one still connects ends that one.
END = "dist.barrier()\ndist.destroy_process_group()\n"


@pytest.mark.parametrize("options", ["", ", num_workers=2", ", num_workers=2, persistent_workers=True"])
def test_the_ids_are_those_of_the_batches_also_when_workers_fetch_ahead(run: Run, tmp_path, options: str) -> None:  # type: ignore[no-untyped-def]
    history = run(
        LOADER
        + f"""
loader = DataLoader(data, 2, sampler=sampler{options})
got = []
for epoch in range(2):
    sampler.set_epoch(epoch)
    got += [batch.tolist() for batch in loader]
show(got=got)
"""
        + END
    )
    assert history.outcome.exit_code == 0
    assert not history.outcome.leftovers
    batches = history.of(Kind.BATCH, rank=1, restart=0)
    assert [[100 + i for i in e.data["ids"]] for e in batches] == shown(tmp_path, history, 1)["got"]
    # Seven samples on two ranks, rank 1 reads 1, 3, 5 and the padding 0.
    assert [(e.data["epoch"], e.data["index"], e.data["ids"]) for e in batches] == [
        (0, 0, [1, 3]),
        (0, 1, [5, 0]),
        (1, 0, [1, 3]),
        (1, 1, [5, 0]),
    ]
    assert [e.data["length"] for e in history.of(Kind.LOADER, rank=1, restart=0)] == [2, 2]
    assert [e.data["batches"] for e in history.of(Kind.LOADER_END, rank=1, restart=0)] == [2, 2]


def test_a_loader_that_is_left_early_is_not_said_to_have_ended(run: Run) -> None:
    history = run(LOADER + "for batch in DataLoader(data, 2, sampler=sampler):\n    break\n" + END)
    assert len(history.of(Kind.BATCH, rank=0)) == 1
    assert not history.of(Kind.LOADER_END)


def test_an_iterable_data_set_has_no_ids_and_no_length(run: Run) -> None:
    history = run(
        LOADER
        + """
class Numbers(IterableDataset):
    def __iter__(self):
        return iter(range(4))
list(DataLoader(Numbers(), 2))
"""
        + END
    )
    assert [e.data["ids"] for e in history.of(Kind.BATCH, rank=0)] == [None, None]
    assert [e.data["length"] for e in history.of(Kind.LOADER, rank=0)] == [None]


@pytest.mark.parametrize(
    "batch",
    [
        "[1, 2]",
        "(1, 2)",
        "numpy.array([1, 2])",
        "torch.tensor([1, 2])",
        "list(numpy.array([1, 2]))",
        "list(torch.tensor([1, 2]))",
    ],
)
def test_ids_are_read_whatever_the_sampler_gives(run: Run, batch: str) -> None:
    text = f"""
import numpy
class Fixed:
    def __iter__(self):
        yield {batch}
    def __len__(self):
        return 1
list(DataLoader(data, batch_sampler=Fixed()))
"""
    history = run(LOADER + text + END)
    assert history.outcome.exit_code == 0
    assert [e.data["ids"] for e in history.of(Kind.BATCH, rank=0)] == [[1, 2]]


def test_a_thread_that_reads_ahead_is_not_where_the_script_is(run: Run) -> None:
    text = """
import threading
loader = iter(DataLoader(data, 2, sampler=sampler))
reader = threading.Thread(target=lambda: next(loader))
reader.start()
reader.join()
"""
    history = run(LOADER + text + END)
    assert [e.phase for e in history.of(Kind.BATCH, rank=0)] == ["init"]


def test_a_short_loader_ends_one_batch_early_in_its_epoch_only(run: Run) -> None:
    text = (
        LOADER
        + "for epoch in range(3):\n    sampler.set_epoch(epoch)\n    list(DataLoader(data, 2, sampler=sampler))\n"
        + END
    )
    history = run(text, ShortLoader(rank=1, batches=1, at=At(epoch=1)))
    assert [e.data["batches"] for e in history.of(Kind.LOADER_END, rank=1)] == [2, 1, 2]
    assert [e.data["batches"] for e in history.of(Kind.LOADER_END, rank=0)] == [2, 2, 2]
    (fired,) = history.of(Kind.FAULT)
    assert (fired.rank, fired.data["epoch"]) == (1, 1)


def test_only_samples_that_trained_are_counted_for_an_update(run: Run) -> None:
    history = run(
        LOADER
        + """
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(data, 2, sampler=sampler)
train = iter(loader)
for _ in range(2):
    x = next(train)
    model.eval()
    for held_out in DataLoader(data, 4):
        with torch.no_grad():
            model(held_out.float().reshape(-1, 1))
    model.train()
    model(x.float().reshape(-1, 1)).sum().backward()
    optimizer.step()
"""
        + END
    )
    assert history.outcome.exit_code == 0
    # The first evaluation begins while the first training batch waits; it is not counted, nor does it count others.
    assert [e.data["ids"] for e in history.of(Kind.UPDATE, rank=0)] == [[0, 2], [4, 6]]


@pytest.mark.parametrize(
    ("held_out", "phase"),
    [
        pytest.param("DataLoader(data, 4)", "eval", id="a loader of its own"),
        pytest.param("loader", "load_batch", id="that of the training"),
    ],
)
def test_what_is_added_up_after_an_evaluation_belongs_to_it(run: Run, held_out: str, phase: str) -> None:
    """To ask for one batch more than there are is no step into the next update."""
    history = run(
        LOADER
        + f"""
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(data, 2, sampler=sampler)
train = iter(loader)
for _ in range(2):
    x = next(train)
    model(x.float().reshape(-1, 1)).sum().backward()
    optimizer.step()
    model.eval()
    for x in {held_out}:
        with torch.no_grad():
            model(x.float().reshape(-1, 1))
            model(x.float().reshape(-1, 1))
    dist.all_reduce(torch.ones(1))
    model.train()
"""
        + END
    )
    assert history.outcome.exit_code == 0
    found = [(e.step, e.phase) for e in history.of(Kind.COLLECTIVE, rank=0) if e.data["op"] == "all_reduce"]
    assert found == [(n + (phase == "load_batch"), phase) for n in (1, 2)]


TRAIN = """
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def update(x):
    model({input}).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
loader = DataLoader(torch.arange(100.0, 112.0).unsqueeze(1), 2)
"""
LOOPS = {
    "passing over what was trained on before a resume": (
        "for i, x in enumerate(loader):\n    if i >= 3:\n        update(x)\n",
        [[6, 7], [8, 9], [10, 11]],
    ),
    "one update of two batches": (
        (
            "batches = iter(loader)\nfor x in batches:\n    model({input}).sum().backward()\n    x = next(batches)\n"
            "    update(x)\n"
        ),
        [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]],
    ),
    "one update of two batches that are read first": (
        (
            "batches = iter(loader)\nwhile window := [x for _, x in zip(range(2), batches)]:\n    x = window[0]\n"
            "    model({input}).sum().backward()\n    x = window[1]\n    update(x)\n"
        ),
        [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]],
    ),
}


@pytest.mark.parametrize("given", ["x", "x.clone()"], ids=["the batch itself", "a copy of it, as on a GPU"])
@pytest.mark.parametrize("how", LOOPS)
def test_batches_that_were_only_read_are_not_counted(run: Run, how: str, given: str) -> None:
    loop, expected = LOOPS[how]
    history = run(LOADER + TRAIN.format(input=given) + loop.format(input=given) + END)
    assert history.outcome.exit_code == 0
    assert [e.data["ids"] for e in history.of(Kind.UPDATE, rank=0)] == expected


@pytest.mark.parametrize("given", ["x", "x.clone()"], ids=["the batch itself", "a copy of it, as on a GPU"])
def test_a_batch_that_is_read_ahead_counts_when_it_is_used(run: Run, given: str) -> None:
    loop = """
batches = iter(loader)
ahead = next(batches)
while ahead is not None:
    x, ahead = ahead, next(batches, None)
    update(x)
"""
    history = run(LOADER + TRAIN.format(input=given) + loop + END)
    assert [e.data["ids"] for e in history.of(Kind.UPDATE, rank=0)] == [[2 * i, 2 * i + 1] for i in range(6)]


@pytest.mark.parametrize("what", ["a teacher that looks first", "a data set that transforms its samples"])
def test_modules_beside_the_model_use_no_batch_and_lose_none(run: Run, what: str) -> None:
    history = run(
        LOADER
        + f"""
class Shifted(torch.utils.data.Dataset):
    shift = torch.nn.Sequential(torch.nn.Linear(1, 1))
    def __len__(self):
        return 12
    def __getitem__(self, index):
        x = torch.tensor([float(index)])
        return self.shift(x).detach() if {what.startswith("a data set")} else x

model, teacher = torch.nn.Linear(1, 1), torch.nn.Linear(1, 1).eval()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in DataLoader(Shifted(), 2):
    optimizer.zero_grad()
    if {what.startswith("a teacher")}:
        with torch.no_grad():
            teacher(x)
    model(x).sum().backward()
    optimizer.step()
"""
        + END
    )
    assert history.outcome.exit_code == 0
    assert [e.data["ids"] for e in history.of(Kind.UPDATE, rank=0)] == [[2 * i, 2 * i + 1] for i in range(6)]


def test_a_thread_that_reads_and_copies_ahead_shifts_no_rank(run: Run) -> None:
    """How far it is when an update is made is chance, so nothing is said of the batches' numbers."""
    history = run(
        LOADER
        + TRAIN.format(input="x")
        + """
import queue, threading
ready = queue.Queue(2)
def read():
    for x in loader:
        ready.put(x + 0)
    ready.put(None)
threading.Thread(target=read).start()
while (x := ready.get()) is not None:
    update(x)
"""
        + END
    )
    assert history.outcome.exit_code == 0
    assert all(e.data["aside"] for e in history.of(Kind.BATCH))
    assert GUARANTEES["LoadersAgree"].check(history, None).outcome == "valid"


def test_loaders_are_numbered_as_they_are_made_not_as_they_are_used(run: Run) -> None:
    # Rank 0 evaluates before it trains: its first loader in use is the second that each rank made.
    history = run(
        LOADER
        + "train, held_out = DataLoader(data, 2, sampler=sampler), DataLoader(data, 4)\n"
        + "if rank == 0:\n    list(held_out)\nlist(train)\n"
        + END
    )
    begun = {r: [(e.data["loader"], e.data["distributed"]) for e in history.of(Kind.LOADER, rank=r)] for r in (0, 1)}
    assert begun == {0: [(1, False), (0, True)], 1: [(0, True)]}


def test_a_new_loader_for_each_epoch_counts_its_passes_on(run: Run) -> None:
    history = run(LOADER + "for _ in range(3):\n    list(DataLoader(data, 2))\n" + END)
    assert [e.data["epoch"] for e in history.of(Kind.LOADER, rank=0)] == [0, 1, 2]


def test_a_sampler_with_replacement_gives_no_ids(run: Run) -> None:
    text = "from torch.utils.data import RandomSampler\nlist(DataLoader(data, 2, sampler=RandomSampler(data, True)))\n"
    history = run(LOADER + text + END)
    assert {e.data["ids"] is None for e in history.of(Kind.BATCH, rank=0)} == {True}


def test_an_update_without_a_new_batch_has_no_new_samples(run: Run) -> None:
    history = run(LOADER + TRAIN.format(input="x") + "for x in loader:\n    update(x)\n    update(x)\n" + END)
    assert [e.data["ids"] for e in history.of(Kind.UPDATE, rank=0)][:4] == [[0, 1], [], [2, 3], []]


DECLARED = {
    "a distributed sampler pads": ("data, sampler=DistributedSampler(data)", (7, 1)),
    "one that drops what is left over pads nothing": ("data, sampler=DistributedSampler(data, drop_last=True)", (7, 0)),
    "no sampler": ("data", (7, 0)),
    "a shard in stride": ("data, sampler=range(rank, 7, 2)", (7, 0)),
    "shuffled": ("data, shuffle=True", (7, 0)),
    "a part by choice": ("data, sampler=SubsetRandomSampler([1, 2])", (None, 0)),
    "a part drawn by chance": ("data, sampler=RandomSampler(data, num_samples=3)", (None, 0)),
    "drawn with weights": ("data, sampler=WeightedRandomSampler([1.0] * 7, 7)", (None, 0)),
    "a sampler of other numbers": ("data, sampler=DistributedSampler([3, 4, 5])", (None, 1)),
    "a data set of a part": ("Subset(data, [1, 2]), sampler=DistributedSampler(range(2))", (None, 0)),
    "batches made even by accelerate": (
        "data, batch_sampler=Even(SequentialSampler(data), 2, False)",
        (7, 3),
    ),
    "an iterable": ("Endless()", (None, 0)),
}


@pytest.mark.parametrize(("made", "declared"), DECLARED.values(), ids=DECLARED)
def test_what_a_loader_declares_of_the_samples_of_a_pass(run: Run, made: str, declared: tuple[int | None, int]) -> None:
    history = run(
        LOADER
        + f"""
from torch.utils.data import (
    BatchSampler, RandomSampler, SequentialSampler, Subset, SubsetRandomSampler, WeightedRandomSampler
)
class Endless(IterableDataset):
    def __iter__(self):
        return iter(range(3))
class Even(BatchSampler):
    even_batches, num_processes = True, 2
next(iter(DataLoader({made})))
"""
        + END
    )
    assert history.outcome.exit_code == 0
    for event in history.of(Kind.LOADER):
        assert (event.data["samples"], event.data["padding"]) == declared


def test_loaders_of_one_data_set_name_the_same_one(run: Run) -> None:
    history = run(LOADER + "for of in (data, list(data), data):\n    next(iter(DataLoader(of)))\n" + END)
    assert [e.data["data"] for e in history.of(Kind.LOADER, rank=1)] == [0, 1, 0]


SAMPLERS = {
    "one that never ends": "Endless()",
    "torch's own, told to give each sample twice": "torch.utils.data.RandomSampler(data, num_samples=24)",
}


@pytest.mark.parametrize("sampler", SAMPLERS.values(), ids=SAMPLERS)
def test_a_sampler_that_repeats_by_design_is_no_mistake(run: Run, sampler: str) -> None:
    history = run(
        LOADER
        + TRAIN.format(input="x")
        + f"""
import itertools
class Endless(torch.utils.data.Sampler):
    def __iter__(self):
        return itertools.cycle(range(rank, 12, 2))
data = torch.arange(12.0).unsqueeze(1)
for x, _ in zip(DataLoader(data, 2, sampler={sampler}), range(8)):
    update(x)
"""
        + END
    )
    assert history.outcome.exit_code == 0
    assert GUARANTEES["SamplesOnce"].check(history, None).outcome != "invalid"
