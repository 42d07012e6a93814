"""One bit of a rank's state is another one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from harness.faults.work import Part, Work, WorkFault, WorkPlace, not_changed
from harness.wire import Event

MAX_BIT = 63  # of the largest elements that torch computes with


@dataclass(frozen=True, kw_only=True)
class FlipBit(WorkFault):
    """After the update one bit of an element of the parameters or of the optimizer's state is inverted, as a fault of
    the memory would: nothing raises, and the value is another one.

    Attributes:
        part: parameter, or optimizer: what it keeps of each parameter.
        bit: which bit, from 0, the lowest; of float32 23 to 30 are the exponent and 31 is the sign.
        name: the tensor: a parameter's name, such as 0.weight, or a key of the optimizer, such as exp_avg (of the first
            parameter that has it), or history[0] of what stands in a container; left out: the first tensor.
        index: the element, from 0, of the tensor laid flat.
    """

    certifies: ClassVar = "one flipped bit is found, whichever it is: rank, part and the first update after it"
    does_not_certify: ClassVar = (
        "that it is put right, or noticed by anything but the bytes: most flips change no loss curve"
    )
    acts_in: ClassVar[WorkPlace] = "optimizer_step"
    drawn: ClassVar = {"bit": tuple(range(32)), "index": (0, 1)}  # of float32

    kind: Literal["flip_bit"] = "flip_bit"
    part: Part = "parameter"
    bit: int = 0
    name: str | None = None
    index: int = 0

    def problems(self) -> list[tuple[str, str]]:
        found = []
        if not 0 <= self.bit <= MAX_BIT:
            found.append(("bit", f"must be 0..{MAX_BIT}, and below the bits of an element: float32 has 32"))
        if self.index < 0:
            found.append(("index", "must be at least 0: elements count from 0"))
        if self.name is not None and not self.name.strip():
            found.append(("name", "must not be empty; leave it out for the first tensor"))
        return found

    def replace(self, work: Work) -> Any:
        result = work.do()
        work.flip_bit(self.part, self.name, self.index, self.bit)
        return result

    def missing_effect(self, fired: Event, after: Sequence[Event]) -> str | None:
        return not_changed(fired, after)
