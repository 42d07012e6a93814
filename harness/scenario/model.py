"""What a scenario file may say: the fields, their types, defaults and bounds.

The descriptions under ``Attributes`` are also what editors show: ``schema`` takes them from here.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Union

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from harness.faults import KINDS, Fault
from harness.faults.base import FORBID_EXTRA
from harness.scenario.effects import Effect
from harness.scenario.gradient import Gradient
from harness.scenario.metric import Metric
from harness.scenario.workloads import is_own_script, script_of
from harness.wire import GuaranteeName

Device = Literal["cpu", "gpu"]
LauncherKind = Literal["warm", "torchrun"]
Expected = Literal["clean", "recovers", "stops", "detected", "refuses", "guaranteed"]
MAX_SEED = 2**63 - 1  # what every random generator in a rank takes

if TYPE_CHECKING:
    AnyFault = Fault
else:
    AnyFault = Annotated[Union[tuple(KINDS.values())], Field(discriminator="kind")]  # noqa: UP007


@dataclass(frozen=True, kw_only=True)
class Broken:
    """A guarantee that must be found broken, and where; what is left out matches any place.

    Attributes:
        guarantee: its name.
        rank: the rank that must be named.
        step: the update, from 1, that must be named.
        operation: the operation that must be named, such as all_reduce.
        verdict: invalid, or unknown: the records cannot tell, and the harness has to ask.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = FORBID_EXTRA

    guarantee: GuaranteeName
    rank: int | None = None
    step: int | None = None
    operation: str | None = None
    verdict: Literal["invalid", "unknown"] = "invalid"


@dataclass(frozen=True, kw_only=True)
class Expect:
    """What must be seen at the run's end.

    Attributes:
        outcome: clean (no fault is planned: an audit of the script), recovers (the job ends well and every guarantee
            holds), stops (it ends in bounded time and the first cause is named), detected (the stack stays silent,
            the harness names what is broken), refuses (bad input or state is refused with a clear error),
            guaranteed (what the guarantees demand of these faults, whichever of these it is).
        resume_step: the step of the checkpoint that the last launch must have gone on from; 0: there was none yet.
        restarts: how many restarts there must have been; left out: any number within max_restarts.
        broken: for detected: the guarantees that must be found broken.
        message: for refuses: words that the refusal must contain.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = FORBID_EXTRA

    outcome: Expected
    resume_step: int | None = None
    restarts: int | None = None
    broken: tuple[Broken, ...] = ()
    message: str | None = None


class Scenario(BaseModel):
    """One scenario: a workload, the faults it meets and what must come of it.

    Attributes:
        title: one sentence: what happens, and what must come of it.
        workload: a name in workloads/, or the path of any torchrun script (ending in .py; from this file's folder).
        args: the script's further arguments; {run_dir} {checkpoints} {steps} {save_every} {seed} are replaced.
        ranks: number of training processes.
        steps: optimizer updates of one uninterrupted run. A script of your own gets it only through args.
        save_every: updates between two checkpoints. A script of your own gets it only through args.
        seed: of every random choice.
        max_restarts: how often the launcher starts all ranks again after a failure.
        devices: where to run it: one test each.
        launcher: warm (forked from a parent that has imported torch) or torchrun (the real command line, slow).
        collective_timeout_s: bound of one collective, in seconds; must be below deadline_s.
        deadline_s: bound of the whole run, in seconds.
        env: further environment variables of the ranks.
        start_from: path (from this file's folder) of what a crash left of an earlier run of the same job: a directory,
            or an archive that crashstates --keep wrote. A copy of it is in {checkpoints} when the job begins; the
            fault-free run begins with nothing.
        acknowledged: the newest step whose save had been reported done in start_from; left out: what the archive says.
        effects: where the job leaves side effects, for EffectsOnce; each kind in an [[effect]] table of its own.
        metric: what the script prints of its evaluations, and what is true of them: MetricRight compares them.
        preload: packages that the warm parent imports once, such as a model library of yours.
        gradient: compares gradients with those in float64, for GradientRight.
        tolerance: largest relative difference of the final state from the fault-free run; left out: byte-equal.
        guarantees: those to be judged; left out: all that apply.
        faults: what goes wrong, each in a [[fault]] table of its own.
        expect: what must come of it.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    title: str = ""
    workload: str = Field(min_length=1)
    args: tuple[str, ...] = ()
    ranks: int = Field(2, ge=1)
    steps: int = Field(20, ge=1)
    save_every: int = Field(5, ge=1)
    seed: int = Field(0, ge=0, le=MAX_SEED)
    max_restarts: int = Field(0, ge=0)
    devices: tuple[Device, ...] = Field(("cpu",), min_length=1)
    launcher: LauncherKind = "warm"
    collective_timeout_s: float = Field(5.0, gt=0, allow_inf_nan=False)
    deadline_s: float = Field(60.0, gt=0, allow_inf_nan=False)
    env: dict[str, str] = Field(default_factory=dict)
    start_from: str | None = Field(None, min_length=1)
    acknowledged: int | None = Field(None, ge=0)
    preload: tuple[str, ...] = ()
    gradient: Gradient | None = None
    tolerance: float | None = Field(None, gt=0, allow_inf_nan=False)
    guarantees: tuple[GuaranteeName, ...] = ()
    metric: Metric | None = None
    effects: tuple[Effect, ...] = Field((), alias="effect")
    faults: tuple[AnyFault, ...] = Field((), alias="fault")
    expect: Expect

    _file: Path | None = PrivateAttr(None)

    @property
    def file(self) -> Path | None:
        """The file it was loaded from; None if it was made in code."""
        return self._file

    @property
    def script(self) -> Path:
        """Absolute path of the training script; it need not exist."""
        return script_of(self.workload, self._file)

    @property
    def start_path(self) -> Path | None:
        """Absolute path of what the job begins with; None: nothing. It need not exist."""
        return None if self.start_from is None else self._resolved(self.start_from)

    @property
    def losses_path(self) -> Path | None:
        """Absolute path of ``gradient.losses``; None without it. It need not exist."""
        return None if self.gradient is None else self._resolved(self.gradient.losses)

    @property
    def reference_path(self) -> Path | None:
        """Absolute path of the metric's reference; None: there is none. It need not exist."""
        return None if self.metric is None else self._resolved(self.metric.reference)

    def _resolved(self, path: str) -> Path:
        folder = Path.cwd() if self._file is None else self._file.parent
        return (folder / Path(path).expanduser()).resolve()

    @property
    def planned_steps(self) -> int | None:
        """``steps``, or None where nothing says that the script keeps to it: one of the user's, not told of it."""
        return self.steps if self._tells_script("steps") else None

    @property
    def planned_save_every(self) -> int | None:
        """``save_every``, with None as for ``planned_steps``."""
        return self.save_every if self._tells_script("save_every") else None

    def _tells_script(self, name: str) -> bool:
        return (
            not is_own_script(self.workload)
            or name in self.model_fields_set
            or any(f"{{{name}}}" in arg for arg in self.args)
        )
