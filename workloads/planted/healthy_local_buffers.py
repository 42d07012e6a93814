"""Healthy: buffers are not broadcast before each forward pass, and those of rank 0 are saved."""

from workloads.planted import run

run(
    """
     find_unused_parameters=world_size > 2,
+    broadcast_buffers=False,
""",
    workload="batch_norm",
)
