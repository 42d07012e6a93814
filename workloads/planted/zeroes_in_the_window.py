"""Gradients are set to zero before each micro-batch, so that only the last one counts."""

from workloads.planted import run

run(
    """
                 sum_H = ddp(batch)
+                optimizer.zero_grad()
""",
    workload="lm_tokens",
)
