"""Rank 0 alone restores the scaler, and gradients of two scales are averaged (facebookresearch/fairseq2#1346)."""

from workloads.planted import run

run(
    """
-    scaler.load_state_dict(loaded.shared["scaler"])  # the scale, and how long it has not overflowed
+    if rank == 0:
+        scaler.load_state_dict(loaded.shared["scaler"])  # the scale, and how long it has not overflowed
""",
    workload="mixed_precision",
)
