"""Gradients are clipped while they are still scaled, so that nearly nothing is left of them."""

from workloads.planted import run

run(
    """
-        scaler.unscale_(optimizer)  # before clipping: else the norm is that of the scale
""",
    workload="mixed_precision",
)
