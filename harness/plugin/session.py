"""What runs plans in this pytest process: one session, opened when the first scenario is about to run."""

from __future__ import annotations

import ctypes
import signal
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest

from harness.plugin.options import session_dir, store_dir

if TYPE_CHECKING:
    from harness.plan import Plan
    from harness.run import Result


class Runs(Protocol):
    """``harness.run.Session``, or what ``pytest_chaos_make_session`` gives instead."""

    def run(self, plan: Plan) -> Result: ...


_OPENED: pytest.StashKey[tuple[ExitStack, Runs]] = pytest.StashKey()
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


class HookSpecs:
    @pytest.hookspec(firstresult=True)
    def pytest_chaos_make_session(self, config: pytest.Config, runs_dir: Path) -> AbstractContextManager[Runs] | None:
        """Make what runs this process's plans, into run directories under ``runs_dir``.

        Called once in each pytest process (with pytest-xdist: in each worker), when its first scenario is about to
        run. Return None to leave it to ``harness.run.Session``.
        """


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    pluginmanager.add_hookspecs(HookSpecs)


@pytest.hookimpl(trylast=True)
def pytest_chaos_make_session(config: pytest.Config, runs_dir: Path) -> AbstractContextManager[Runs]:
    from harness.run import Session

    return Session(store_dir(config), runs_dir, fresh_baselines=config.getoption("fresh_baselines"))


def runs_of(config: pytest.Config) -> Runs:
    """This process's session.

    Raises:
        HarnessError: it could not be opened.
    """
    from harness.kept_runs import make_session_dir

    if _OPENED not in config.stash:
        end_with_controller(config)
        runs_dir = session_dir(config)
        make_session_dir(store_dir(config), runs_dir.name, {"arguments": list(config.invocation_params.args)})
        with ExitStack() as opening:
            runs = opening.enter_context(config.hook.pytest_chaos_make_session(config=config, runs_dir=runs_dir))
            config.stash[_OPENED] = opening.pop_all(), runs
    return config.stash[_OPENED][1]


def end_with_controller(config: pytest.Config) -> None:
    """Have the kernel send SIGTERM to a worker of pytest-xdist when its controller ends, however that ends.

    Else execnet lets what runs go on for up to 15 s, in which its ranks train for nobody (execnet/gateway_base.py,
    ``WorkerGateway.serve`` and ``_terminate_execution``).
    """
    if hasattr(config, "workerinput"):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)


def close(session: pytest.Session) -> None:
    """End what runs this process's plans, if it was opened."""
    if _OPENED in session.config.stash:
        session.config.stash[_OPENED][0].close()
        del session.config.stash[_OPENED]
