"""From a workload's name to its script."""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path


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


@cache
def _folder() -> Path:
    """Where workloads/ is: found, not imported, since the workloads import torch."""
    spec = importlib.util.find_spec("workloads")
    places = [] if spec is None or spec.submodule_search_locations is None else list(spec.submodule_search_locations)
    return Path(places[0] if places else "workloads")
