"""Probes ask real programs; what is missing is made missing for real (an empty PATH, a broken torch)."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest

from harness import probes
from harness.doctor import MAIN_JOB, WIDTH, diagnosis, missing_for_main_job
from harness.probes import Capability, TorchFacts, capabilities, torch_facts


@pytest.fixture(scope="module")
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that is filled once: importing torch takes seconds."""
    directory = tmp_path_factory.mktemp("store")
    torch_facts(directory)
    return directory


@pytest.fixture
def broken_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Importing torch fails in every child process."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise ImportError('libgone.so: cannot open')")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{Path(probes.__file__).parents[1]}")


def test_the_child_reports_torch_and_a_gloo_group_that_works(cache_dir: Path) -> None:
    facts = torch_facts(cache_dir)
    assert facts.version == metadata.version("torch")
    assert (facts.trouble, facts.gloo_trouble) == ("", "")


@pytest.mark.usefixtures("broken_torch")
def test_what_the_child_said_is_kept_and_not_asked_again(cache_dir: Path) -> None:
    first = torch_facts(cache_dir)
    assert first.trouble == ""  # the broken torch was not asked
    (kept,) = cache_dir.glob("capabilities-*.json")
    stored = json.loads(kept.read_text())
    assert probes._facts_of(stored["facts"]) == first


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda text: text[: len(text) // 2], id="half a file"),
        pytest.param(lambda text: "[]", id="another kind of JSON"),
        pytest.param(lambda text: text.replace('"3.', '"2.'), id="written under another Python"),
        pytest.param(lambda text: text.replace('"gpus"', '"gups"'), id="an unknown field"),
    ],
)
def test_a_cache_that_cannot_be_trusted_is_ignored(
    damage: Callable[[str], str], cache_dir: Path, tmp_path: Path
) -> None:
    (kept,) = cache_dir.glob("capabilities-*.json")
    key = json.loads(kept.read_text())["key"]
    copy = tmp_path / kept.name
    copy.write_text(kept.read_text())
    assert probes._load_cache(copy, key) is not None
    copy.write_text(damage(kept.read_text()))
    assert probes._load_cache(copy, key) is None


@pytest.mark.usefixtures("broken_torch")
def test_a_torch_that_cannot_be_imported_is_named_with_its_error_and_not_kept(tmp_path: Path) -> None:
    found = capabilities(tmp_path / "store")
    assert not found["torch"].available
    assert "libgone.so" in found["torch"].detail
    assert not found["gloo"].available
    assert missing_for_main_job(found) == ["torch", "gloo"]
    assert not list(tmp_path.glob("store/*"))


def test_programs_that_are_missing_are_named_with_a_cure(
    cache_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # nothing in it
    found = capabilities(cache_dir)
    assert found["strace"] == Capability(
        "strace",
        False,
        "not installed",
        "exact crash points of foreign checkpoint code need it: install the package strace",
    )
    assert found["attach"].detail == "strace is not installed: install the package strace"
    assert "unshare" in found["namespaces"].detail
    assert not found["tmpfs"].available
    assert found["torch"].available


def test_a_program_that_never_answers_is_bounded(tmp_path: Path) -> None:
    ok, detail = probes._outcome([sys.executable, "-c", "import signal; signal.pause()"], timeout_s=0.2)
    assert (ok, detail) == (False, f"{sys.executable}: no answer within 0.2 s")


def test_whatever_is_missing_has_a_cure_and_whatever_is_there_has_none(cache_dir: Path) -> None:
    for capability in capabilities(cache_dir).values():
        assert bool(capability.cure) != capability.available, capability


@pytest.mark.parametrize(
    ("facts", "name", "expected"),
    [
        pytest.param(TorchFacts("2.13", gpus=("H200",) * 8), "gpus", "8: H200", id="eight alike"),
        pytest.param(TorchFacts("2.13", gpus=("A", "B")), "gpus", "2: A, B", id="two kinds"),
        pytest.param(TorchFacts("2.13", cuda_build="12.8"), "gpus", "none found", id="CUDA build, no GPU"),
        pytest.param(TorchFacts("2.13"), "gpus", "none found (torch is a CPU build)", id="CPU build"),
        pytest.param(TorchFacts("2.13", nccl="2.27.3"), "nccl", "2.27.3", id="NCCL's version"),
    ],
)
def test_gpu_facts(facts: TorchFacts, name: str, expected: str) -> None:
    capability = probes._gpus(facts) if name == "gpus" else probes._nccl(facts)
    assert capability.detail == expected
    assert capability.available == bool(facts.gpus or facts.nccl)


def test_the_doctor_prints_cures_below_what_is_missing_and_fits_the_screen() -> None:
    found = {name: Capability(name, True, "there") for name in MAIN_JOB}
    assert diagnosis(found).splitlines()[-1] == "The main job can run: pytest scenarios"
    found["gloo"] = Capability("gloo", False, "no route " * 20, "every CPU run needs it: " + "fix the network " * 10)
    text = diagnosis(found)
    assert text.index("NO   gloo") < text.index("no route") < text.index("every CPU run needs it")
    assert text.splitlines()[-1] == "The main job cannot run: gloo missing. Follow the cures above."
    assert max(map(len, text.splitlines())) <= WIDTH


def test_probing_imports_no_torch_here() -> None:
    code = "import sys; from harness.probes import capabilities; capabilities(); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "False"
