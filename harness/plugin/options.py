"""The command line, the markers, and where this session keeps its runs."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

GPU_MARK = "gpu: needs one GPU for each rank; with --require-gpus a missing GPU fails the test instead of skipping it"
CHAOS_MARK = "chaos: drawn from a seed; needs a time budget"

_SESSION_NAME: pytest.StashKey[str] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("chaos", "fault injection into distributed PyTorch training")
    group.addoption("--launcher", choices=("warm", "torchrun"), help="How ranks are started (default: the scenario's)")
    group.addoption("--disarm", action="store_true", help="Leave all faults out: each scenario must then end unknown")
    group.addoption(
        "--require-gpus", action="store_true", help="Fail GPU tests that lack GPUs instead of skipping them"
    )
    group.addoption("--chaos-seed", type=int, metavar="N", help="Seed of every random choice (default: the scenario's)")
    group.addoption("--chaos-store", metavar="DIR", help="Where runs and baselines are kept (default: ROOTDIR/.chaos)")
    group.addoption("--fresh-baselines", action="store_true", help="Run every fault-free twin again")
    group.addoption(
        "--chaos-report", action="store_true", help="Write a page of every run, not only of those that fail"
    )
    group.addoption("--chaos-runs", type=int, metavar="N", help="Run N plans drawn from the seed, and no test")
    group.addoption("--chaos-minutes", type=float, metavar="M", help="Run plans drawn from the seed for M minutes")
    group.addoption("--chaos-shard", default="1/1", metavar="I/N", help="Of these plans the I-th of N parts")
    group.addoption("--chaos-out", metavar="DIR", help="Where the scenario files of what chaos finds are written")
    group.addoption("--recheck", metavar="DIR", help="Judge the runs stored under DIR again instead of running any")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", GPU_MARK)
    config.addinivalue_line("markers", CHAOS_MARK)
    if (seed := config.getoption("chaos_seed")) is not None and seed < 0:
        raise pytest.UsageError(f"--chaos-seed={seed}: must be 0 or more")
    is_asked_for = config.getoption("markexpr", "") == "chaos"
    if is_asked_for and not is_chaos(config):
        raise pytest.UsageError("-m chaos needs a budget: --chaos-runs N, --chaos-minutes M, or both")
    if is_chaos(config):
        config.args = []  # nothing is collected from files: the plans are drawn
    if (stored := config.getoption("recheck")) is not None:
        if not Path(stored).is_dir():
            raise pytest.UsageError(f"--recheck={stored}: no such directory; give a run directory or one above it")
        config.args = [stored]  # only what lies there is collected, whatever else was asked for


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """pytest-xdist: every worker writes into the directory of its controller's session."""
    node.workerinput["chaos_session"] = session_dir(node.config).name


def is_chaos(config: pytest.Config) -> bool:
    """Whether this session runs plans that are drawn, and no other test."""
    return config.getoption("chaos_runs") is not None or config.getoption("chaos_minutes") is not None


def store_dir(config: pytest.Config) -> Path:
    return Path(config.getoption("chaos_store") or config.rootpath / ".chaos").absolute()


def session_dir(config: pytest.Config) -> Path:
    """Where the runs of this session are kept; it need not exist yet."""
    from harness.kept_runs import session_name

    if _SESSION_NAME not in config.stash:
        from_controller = getattr(config, "workerinput", {}).get("chaos_session")
        config.stash[_SESSION_NAME] = from_controller or session_name(datetime.now(UTC), os.getpid())
    return store_dir(config) / "runs" / config.stash[_SESSION_NAME]


def as_typed(path: Path, config: pytest.Config) -> Path:
    """``path`` as the user would type it."""
    here = config.invocation_params.dir
    return path.relative_to(here) if path.is_relative_to(here) else path
