"""From a workload's name to its script."""

from __future__ import annotations

import difflib
import importlib.util
from functools import cache
from pathlib import Path

PLANTED = "planted/"  # before the names of those with a bug, and of their healthy controls


def is_own_script(workload: str) -> bool:
    """Whether ``workload`` is the path of a script of the user's, not a name in workloads/."""
    return workload.endswith(".py")


def script_of(workload: str, scenario_file: Path | None) -> Path:
    """Absolute path of the script: of a name in workloads/, or relative to the scenario file's folder."""
    if is_own_script(workload):
        folder = Path.cwd() if scenario_file is None else scenario_file.parent
        return (folder / Path(workload).expanduser()).resolve()
    return (_folder() / f"{workload}.py").resolve()


@cache
def workload_names() -> tuple[str, ...]:
    """The names that a scenario may give, ``planted/NAME`` among them, sorted."""
    folder = _folder()
    scripts = [*folder.glob("*.py"), *folder.glob("planted/*.py")]
    return tuple(sorted(s.relative_to(folder).with_suffix("").as_posix() for s in scripts if s.name[0] != "_"))


def own_workload_names() -> tuple[str, ...]:
    """The names of those that train as they should: without the planted ones, sorted."""
    return tuple(name for name in workload_names() if not name.startswith(PLANTED))


def nearest_workload(name: str) -> str | None:
    """The name that was probably meant, a planted one too; None if none is near."""
    return next(iter(difflib.get_close_matches(name, workload_names(), n=1)), None)


def no_workload(name: str) -> str:
    """What to say of a name that is none: what was probably meant, then what there is."""
    near = difflib.get_close_matches(name, workload_names(), n=3)
    hint = f" did you mean {' or '.join(map(repr, near))}?" if near else ""
    num_planted = len(workload_names()) - len(own_workload_names())
    planted = f", one of the {num_planted} in workloads/planted as {PLANTED}NAME" if num_planted else ""
    return f"unknown workload;{hint} allowed: {', '.join(own_workload_names())}{planted}"


@cache
def _folder() -> Path:
    """Where workloads/ is: found, not imported, since the workloads import torch."""
    spec = importlib.util.find_spec("workloads")
    places = [] if spec is None or spec.submodule_search_locations is None else list(spec.submodule_search_locations)
    return Path(places[0] if places else "workloads")
