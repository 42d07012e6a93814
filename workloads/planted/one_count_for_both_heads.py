"""Both heads are divided by the number of one's targets."""

from workloads.planted import run

run(
    """
-                mean = (weight_H * sum_H / num_targets_H.clamp(min=1)).sum()
+                mean = (weight_H * sum_H / num_targets_H[0].clamp(min=1)).sum()
""",
    workload="lm_tokens",
)
