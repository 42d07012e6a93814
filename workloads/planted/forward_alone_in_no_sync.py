"""The last micro-batch's forward pass is in no_sync, and only its backward is outside (pytorch/PiPPy#1133)."""

from workloads.planted import run

run(
    """
-            with contextlib.nullcontext() if number == len(window) else ddp.no_sync():
-                sum_H = ddp(batch)
-                mean = (weight_H * sum_H / num_targets_H.clamp(min=1)).sum()
-                (world_size * mean).backward()  # DDP divides by the number of ranks, and no target should be
+            with ddp.no_sync():
+                sum_H = ddp(batch)
+            with contextlib.nullcontext() if number == len(window) else ddp.no_sync():
+                mean = (weight_H * sum_H / num_targets_H.clamp(min=1)).sum()
+                (world_size * mean).backward()  # DDP divides by the number of ranks, and no target should be
""",
    workload="lm_tokens",
)
