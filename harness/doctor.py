"""``python -m harness doctor``: what this machine can do, what is missing, and what to do about it."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from itertools import chain

from harness.probes import Capability

WIDTH = 100
MAIN_JOB = ("linux", "torch", "gloo", "memory")  # what `pytest scenarios` cannot do without


def missing_for_main_job(found: Mapping[str, Capability]) -> list[str]:
    """Names of the capabilities that the main job needs and this machine lacks."""
    return [name for name in MAIN_JOB if not found[name].available]


def diagnosis(found: Mapping[str, Capability]) -> str:
    """A table of all capabilities, each missing one followed by its cure, and a last line that says what it means."""
    lines = list(chain.from_iterable(_rows(capability) for capability in found.values()))
    if missing := missing_for_main_job(found):
        lines.append(f"The main job cannot run: {', '.join(missing)} missing. Follow the cures above.")
    else:
        lines.append("The main job can run: pytest scenarios")
    return "\n".join(lines)


def _rows(capability: Capability) -> list[str]:
    label = f"  {'yes' if capability.available else 'NO ':<4} {capability.name:<11} "
    rows = textwrap.wrap(capability.detail, WIDTH, initial_indent=label, subsequent_indent=" " * len(label))
    if capability.cure:
        rows += textwrap.wrap(
            capability.cure, WIDTH, initial_indent=" " * len(label), subsequent_indent=" " * len(label)
        )
    return rows
