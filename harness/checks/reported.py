"""Is the number that a script prints of each evaluation the one that the scenario's reference gives?"""

from __future__ import annotations

import math
from decimal import Decimal, InvalidOperation

from harness.checks.base import Verdict, invalid, unknown, valid
from harness.checks.records import failed_restarts
from harness.history import History
from harness.wire import Kind

RELATIVE = 1e-6  # sums of float32 in another order; one sample in a million that counts twice is not seen


def reported_right(history: History) -> Verdict:
    """The verdict on a run whose plan states a metric: the n-th number printed against the n-th of the reference."""
    compared, largest = 0, 0.0
    for restart in range(history.restarts + 1):
        asked = history.of(Kind.METRIC, rank=0, restart=restart)
        printed = history.reported.get(restart, ())
        if (failed := next((e for e in asked if e.data["value"] is None), None)) is not None:
            return unknown(str(failed.data["problem"]), failed)
        for event, text in zip(asked, printed, strict=False):
            said, true = _number(text), float(event.data["value"])
            if said is None:
                return unknown(f"of the evaluation after update {event.step} {text!r} is printed: no number", event)
            if not _are_equal(said, true) and (_are_equal(said / 100, true) or _are_equal(said * 100, true)):
                return unknown(
                    f"the script reports {text} of the evaluation after update {event.step}, and metric() says "
                    f"{true:.6g}: the same in another unit; let metric() return what is printed, percent for percent",
                    event,
                )
            if not _are_equal(said, true):
                return invalid(
                    f"the script reports {text} of the evaluation after update {event.step}, but the same model has "
                    f"{true:.6g} on the whole data set: are samples counted twice, or means averaged?",
                    event,
                    seen={"reported": text, "reference": true},
                )
            compared += 1
            largest = max(largest, abs(float(said) - true))
        cut_off = restart in failed_restarts(history) and len(printed) < len(asked)
        if len(printed) != len(asked) and not cut_off:
            return unknown(
                f"launch {restart} of rank 0 evaluated {len(asked)} times and printed {len(printed)} numbers: "
                "metric.reported must match once for each evaluation that reads its data loader to the end",
                next(iter(asked), None),
            )
    if not compared:
        return unknown("no evaluation is on record that reads a data loader to its end on rank 0 and prints its number")
    return valid(f"{compared} numbers that were reported are those of the reference, within {largest:.1g}")


def _number(text: str) -> Decimal | None:
    try:
        return Decimal(text.strip())
    except InvalidOperation:
        return None


def _are_equal(said: Decimal, true: float) -> bool:
    """Whether ``true`` may have been printed as ``said``: within half a unit of its last digit."""
    if not said.is_finite() or not math.isfinite(true):
        return str(float(said)) == str(true)
    exponent = said.as_tuple().exponent
    half_a_unit = 0.5 * 10.0 ** int(exponent)
    return abs(float(said) - true) <= half_a_unit + RELATIVE * abs(true)
