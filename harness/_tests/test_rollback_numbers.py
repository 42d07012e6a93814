"""The textbook's rollback, in full length: saved every 1,000 updates, failed after 1,750, 750 are done again."""

from __future__ import annotations

from pathlib import Path

from harness._tests.launched import Run
from harness.checks import GUARANTEES
from harness.checks.records import surviving, updates
from harness.faults.base import At
from harness.faults.kill import Kill
from harness.wire import Kind

SCRIPT = """
from pathlib import Path
from harness.checkpoint.store import CheckpointStore
dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.AdamW(model.parameters())
torch.manual_seed(1 + rank)
store = CheckpointStore(sys.argv[1])
step = 0
if (loaded := store.load()) is not None:
    step = loaded.step
    model.load_state_dict(loaded.shared["model"])
    optimizer.load_state_dict(loaded.shared["optimizer"])
    torch.set_rng_state(loaded.own["rng"])
ddp = torch.nn.parallel.DistributedDataParallel(model)
while step < 2000:
    optimizer.zero_grad()
    ddp(torch.randn(2, 4)).square().mean().backward()
    optimizer.step()
    step += 1
    if step % 1000 == 0:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        store.save(step, shared=state, own={"rng": torch.get_rng_state()})
del ddp
dist.destroy_process_group()
"""


def test_1_750_updates_of_which_750_are_done_again(run: Run, tmp_path: Path) -> None:
    kill = Kill(rank=1, at=At(step=1751, phase="forward"))
    history = run(SCRIPT, kill, args=(str(tmp_path / "checkpoints"),), max_restarts=1, deadline_s=90.0)
    assert (history.outcome.exit_code, history.restarts) == (0, 1)

    done = updates(history)
    first, second = (sorted(done[1, restart]) for restart in (0, 1))  # rank 0 is ended wherever it is by then
    assert first == [*range(1, 1751)]
    assert second == [*range(1001, 2001)]
    assert len({*first} & {*second}) == 750
    assert [*surviving(done)[0]] == [*range(1, 2001)]
    assert {e.restart for step, e in surviving(done)[0].items() if step > 1000} == {1}
    (load,) = history.of(Kind.LOAD, rank=0, restart=1)
    assert load.data["loaded_step"] == 1000

    assert GUARANTEES["RollbackExact"].check(history, None).outcome == "valid"
    replayed = GUARANTEES["ReplayIdentical"].check(history, None)
    twice = sum(len({*done[rank, 0]} & {*done[rank, 1]}) for rank in (0, 1))
    assert (replayed.outcome, replayed.reason) == ("valid", f"{twice} replayed updates are equal to the first time")
