"""What a run was made of, in a process that began by itself and in one that was forked from a warm one."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from harness.rank import sources

SOURCES = "harness/rank/sources.py"


@pytest.fixture
def make_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], str]]:
    """Writes and imports a module; returns its file."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sources, "_known", set())
    monkeypatch.setattr(sources, "_marker", "")
    before = set(sys.modules)

    def make(name: str) -> str:
        file = tmp_path / f"{name}.py"
        file.write_text("")
        importlib.invalidate_caches()
        importlib.import_module(name)
        return str(file)

    yield make
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_files_of_an_installation_are_none_of_it(make_module: Callable[[str], str]) -> None:
    mine = make_module("mine_of_sources")
    found = sources.sources()
    assert mine in found
    assert found == sorted(found)
    assert any(file.endswith(SOURCES) for file in found)
    assert not [file for file in found if file.startswith((sys.prefix, sys.base_prefix))]


@pytest.mark.parametrize("num_new", [0, 1, 63, 64, 65, 200])
def test_after_it_was_remembered_new_ones_are_found_as_well(make_module: Callable[[str], str], num_new: int) -> None:
    before = make_module("before_of_sources")
    sources.remember()
    new = {make_module(f"new_{number}_of_sources") for number in range(num_new)}
    assert {before, *new} <= set(sources.sources())
    assert len(sources._new_modules()) == num_new  # no other one is looked at


def test_a_module_that_is_unloaded_after_it_was_remembered_hides_no_new_one(make_module: Callable[[str], str]) -> None:
    unloaded = [f"old_{number}_of_sources" for number in range(100)]
    files = {make_module(name) for name in unloaded}
    sources.remember()
    for name in unloaded:
        del sys.modules[name]
    assert {make_module("new_of_sources"), *files} <= set(sources.sources())


class Lazy(ModuleType):
    """Imports at need what it hands on, as model libraries do; here that fails."""

    def __getattr__(self, name: str) -> object:
        raise RuntimeError(f"{name} cannot be imported: CUDA is missing")


@pytest.mark.parametrize(
    "odd",
    [
        pytest.param(Lazy("odd_of_sources"), id="imports at need"),
        pytest.param(SimpleNamespace(), id="an object in place of a module"),
        pytest.param(None, id="none, for it shall not be imported"),
    ],
)
@pytest.mark.parametrize("is_remembered", [True, False])
def test_no_odd_module_ends_the_job(
    make_module: Callable[[str], str], monkeypatch: pytest.MonkeyPatch, odd: Any, is_remembered: bool
) -> None:
    monkeypatch.setitem(sys.modules, "odd_of_sources", odd)
    mine = make_module("mine_of_sources")
    if is_remembered:
        sources.remember()
    assert mine in sources.sources()


def test_a_file_may_be_given_as_a_path_and_its_module_be_any_object(
    make_module: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = make_module("path_of_sources")
    monkeypatch.setitem(sys.modules, "path_of_sources", SimpleNamespace(__file__=Path(mine)))
    assert mine in sources.sources()
