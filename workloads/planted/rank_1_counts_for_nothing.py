"""A wrong mask multiplies the loss of rank 1 by zero: its targets are counted, and have no gradient."""

from workloads.planted import run

run(
    """
-                (world_size * mean).backward()  # DDP divides by the number of ranks, and no target should be
+                (world_size * mean * (rank == 0)).backward()
""",
    workload="lm_tokens",
)
