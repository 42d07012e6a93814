"""Saves and loads that are not our store's, seen in scripts that know nothing of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness._tests.launched import Run
from harness.faults.base import At
from harness.faults.torn import Torn
from harness.history import History
from harness.wire import Kind

DCP = """
dist.init_process_group("gloo")
{imports}
state = {{"x": torch.ones(3)}}
{save}
{load}
dist.destroy_process_group()
"""
GATHERED = """
dist.init_process_group("gloo")
dist.all_gather_object([None, None], torch.ones(2))
dist.destroy_process_group()
"""
# A package of that name: what counts is how it is imported.
SAFETENSORS = """
from pathlib import Path
package = Path(sys.path[0], f"library-{rank}", "safetensors")
package.mkdir(parents=True)
(package / "__init__.py").touch()
(package / "torch.py").write_text("def save_file(tensors, filename): ...\\ndef load_file(filename): ...\\n")
sys.path.insert(0, str(package.parent))
from safetensors.torch import load_file, save_file
save_file({}, "/tmp/x.safetensors")
load_file(filename="/tmp/x.safetensors")
"""


def seen(history: History, rank: int = 0) -> list[tuple[str, str, str | None]]:
    events = history.of((Kind.FOREIGN_SAVE, Kind.FOREIGN_LOAD), rank=rank, restart=0)
    return [(e.kind, e.data["by"], e.data["path"]) for e in events]


def test_torch_save_and_load_with_a_path(run: Run) -> None:
    history = run("torch.save({}, f'{sys.path[0]}/{rank}.pt')\ntorch.load(f'{sys.path[0]}/{rank}.pt')\n")
    for rank in range(2):
        path = history.plan.script.replace("script.py", f"{rank}.pt")
        assert seen(history, rank) == [("foreign_save", "torch.save", path), ("foreign_load", "torch.load", path)]


@pytest.mark.parametrize(
    "opened",
    ["open({}, 'wb')", "io.FileIO({}, 'w')", "pathlib.Path({}).open('wb')", "tempfile.NamedTemporaryFile(dir={}[:-2])"],
)
def test_torch_save_to_a_file_that_the_script_has_opened(run: Run, opened: str) -> None:
    text = f"""
import io, pathlib, tempfile
with {opened.format("f'{sys.path[0]}/{rank}.pt'" if "Temporary" not in opened else "f'{sys.path[0]}//'")} as file:
    torch.save({{}}, file)
    file.flush()
    torch.load(open(file.name, "rb"))
    print("opened", file.name, flush=True)
"""
    history = run(text)
    (save, load) = seen(history)
    assert save[:2] == ("foreign_save", "torch.save")
    assert load[:2] == ("foreign_load", "torch.load")
    assert save[2] == load[2]
    assert save[2] is not None


def test_what_is_no_file_has_no_path(run: Run) -> None:
    """What is saved into memory may be a message as well, so that only the load says anything."""
    history = run("import io\nfile = io.BytesIO()\ntorch.save({}, file)\nfile.seek(0)\ntorch.load(file)\n")
    assert history.outcome.exit_code == 0
    assert seen(history) == [("foreign_load", "torch.load", None)]


def test_a_tensor_in_a_message_is_no_load(run: Run) -> None:
    """Taken for one, a job that gathers its random states and loads no checkpoint would pass for one that does."""
    history = run(GATHERED)
    assert history.outcome.exit_code == 0
    assert seen(history) == []
    assert "load" not in {event.phase for event in history.of(rank=0)}


def test_a_save_that_fails_is_none(run: Run) -> None:
    assert seen(run("torch.save({}, '/nowhere/x.pt')")) == []


@pytest.mark.parametrize(
    ("imports", "save", "load"),
    [
        pytest.param(
            "import torch.distributed.checkpoint as dcp",
            "dcp.save(state, checkpoint_id=f'{sys.path[0]}/ck')",
            "dcp.load(state, checkpoint_id=f'{sys.path[0]}/ck')",
            id="by its package's name, with a directory",
        ),
        pytest.param(
            "from torch.distributed.checkpoint import FileSystemReader, FileSystemWriter, load, save",
            "save(state, storage_writer=FileSystemWriter(f'{sys.path[0]}/ck'))",
            "load(state, storage_reader=FileSystemReader(f'{sys.path[0]}/ck'))",
            id="by the functions' names, with a writer",
        ),
    ],
)
def test_distributed_checkpoints(run: Run, imports: str, save: str, load: str) -> None:
    history = run(DCP.format(imports=imports, save=save, load=load))
    assert history.outcome.exit_code == 0
    path = history.plan.script.replace("script.py", "ck")
    found = [event for event in seen(history, 1) if event[1] != "torch.load"]  # it reads with that, from open files
    assert found == [
        ("foreign_save", "torch.distributed.checkpoint.save", path),
        ("foreign_load", "torch.distributed.checkpoint.load", path),
    ]


def test_a_library_that_is_imported_later(run: Run) -> None:
    history = run(SAFETENSORS)
    assert history.outcome.exit_code == 0
    assert seen(history, 1) == [
        ("foreign_save", "safetensors.torch.save_file", "/tmp/x.safetensors"),
        ("foreign_load", "safetensors.torch.load_file", "/tmp/x.safetensors"),
    ]


@pytest.mark.parametrize("f", ["path", "open(path, 'wb')"], ids=["to a path", "to a file that the script has opened"])
def test_a_torn_torch_save_leaves_the_first_half(run: Run, f: str) -> None:
    text = "path = f'{sys.path[0]}/{rank}.pt'\nif rank == 1:\n    torch.save(torch.ones(1000), FILE)\n    os._exit(0)\n"
    history = run(text.replace("FILE", f), Torn(rank=1, at=At(failpoint="torch.save")))
    (fired,) = history.of(Kind.FAULT)
    left = Path(history.plan.script).with_name("1.pt").stat().st_size
    assert left == fired.data["part_bytes"] < fired.data["size_bytes"]
    assert [e.exit_code for e in history.outcome.agent_exits] == [-9]
