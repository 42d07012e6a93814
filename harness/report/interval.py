"""How often to save: what an interval costs, and which one is best.

A save takes ``save_s``, a recovery ``recovery_s``; failures come at random, ``mtbf_s`` apart in the mean. The interval
is the time of training between two saves.

    J. W. Young, A first order approximation to the optimum checkpoint interval, CACM 17(9), 1974, 530-531
    J. T. Daly, A higher order estimate of the optimum checkpoint interval for restart dumps, FGCS 22(3), 2006, 303-312
"""

from __future__ import annotations

import math
from dataclasses import dataclass

DEFAULT_MTBF_S = 24 * 3600.0


@dataclass(frozen=True, kw_only=True)
class Advice:
    """The best interval for what was measured and stated; all times in seconds.

    Attributes:
        young_s, daly_s: the best interval by each paper.
        cost: the share of time on top of the training itself that saving, rework and recovery take at ``daly_s``.
        used_s: the interval of the run itself, if it saved; ``used_cost`` is its share.
    """

    save_s: float
    recovery_s: float
    mtbf_s: float
    young_s: float
    daly_s: float
    cost: float
    used_s: float | None = None
    used_cost: float | None = None


def advise(save_s: float, recovery_s: float, mtbf_s: float = DEFAULT_MTBF_S, used_s: float | None = None) -> Advice:
    """The advice.

    Raises:
        ValueError: a time is not positive, or the recovery's is negative.
    """
    if not (save_s > 0 and mtbf_s > 0 and recovery_s >= 0):
        raise ValueError(
            f"save_s={save_s}, mtbf_s={mtbf_s}: must be above 0; recovery_s={recovery_s}: must not be below it"
        )
    best_s = daly(save_s, mtbf_s)
    return Advice(
        save_s=save_s,
        recovery_s=recovery_s,
        mtbf_s=mtbf_s,
        young_s=young(save_s, mtbf_s),
        daly_s=best_s,
        cost=cost(best_s, save_s, recovery_s, mtbf_s),
        used_s=used_s,
        used_cost=None if not used_s else cost(used_s, save_s, recovery_s, mtbf_s),
    )


def young(save_s: float, mtbf_s: float) -> float:
    """Young's interval: the save's time is small beside the time between failures."""
    return math.sqrt(2 * save_s * mtbf_s)


def daly(save_s: float, mtbf_s: float) -> float:
    """Daly's higher-order interval (his equation 37): also where saves are not that small."""
    if save_s >= 2 * mtbf_s:
        return mtbf_s
    ratio = save_s / (2 * mtbf_s)
    return math.sqrt(2 * save_s * mtbf_s) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - save_s


def cost(interval_s: float, save_s: float, recovery_s: float, mtbf_s: float) -> float:
    """The share of time on top of the training itself (Daly's equation 20, less 1); infinite if nothing gets done."""
    try:
        return mtbf_s / interval_s * math.exp(recovery_s / mtbf_s) * math.expm1((interval_s + save_s) / mtbf_s) - 1
    except OverflowError:
        return math.inf
