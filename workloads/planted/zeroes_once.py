"""Gradients are set to zero at the first update only, and add up from then on."""

from workloads.planted import run

run(
    """
-        optimizer.zero_grad()
+        if step == 0:
+            optimizer.zero_grad()
""",
    workload="lm_tokens",
)
