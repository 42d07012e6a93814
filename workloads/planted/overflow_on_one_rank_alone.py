"""Rank 1 finds an overflow that the others do not hear of, and skips its update alone (pytorch/pytorch#115710)."""

from workloads.planted import run

run(
    """
-        scaler.unscale_(optimizer)  # before clipping: else the norm is that of the scale
+        if rank == 1 and step == 6:
+            next(model.parameters()).grad.fill_(float("inf"))
+        scaler.unscale_(optimizer)  # before clipping: else the norm is that of the scale

-        if scaler.get_scale() < scale:
-            num_skipped += 1
-            if scale < 1:
-                raise FloatingPointError(f"after update {step} gradients are not finite at any scale; lower --lr")
-            continue
""",
    workload="mixed_precision",
)
