"""The ranks are forgotten: DDP divides by their number, as did the count of targets (vllm-project/speculators#942)."""

from workloads.planted import run

run(
    """
-                (world_size * mean).backward()  # DDP divides by the number of ranks, and no target should be
+                mean.backward()
""",
    workload="lm_tokens",
)
