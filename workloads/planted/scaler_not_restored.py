"""The gradient scaler is made anew by a resume (mosaicml/composer#1376)."""

from workloads.planted import run

run(
    """
-    scaler.load_state_dict(loaded.shared["scaler"])  # the scale, and how long it has not overflowed
""",
    workload="mixed_precision",
)
