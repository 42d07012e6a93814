"""Each rank divides by its own targets: those of a rank with few count more (PrimeIntellect-ai/prime-rl#2358)."""

from workloads.planted import run

run(
    """
-        dist.all_reduce(num_targets_H)

-                (world_size * mean).backward()  # DDP divides by the number of ranks, and no target should be
+                mean.backward()
""",
    workload="lm_tokens",
)
