"""The scale is restored, and not how long it has not overflowed (mosaicml/composer#1376)."""

from workloads.planted import run

run(
    """
-    scaler.load_state_dict(loaded.shared["scaler"])  # the scale, and how long it has not overflowed
+    scaler.load_state_dict({**loaded.shared["scaler"], "_growth_tracker": 0})
""",
    workload="mixed_precision",
)
