"""Buffers are never broadcast, and those of rank 1 begin as others (pytorch/pytorch#111138)."""

from workloads.planted import run

run(
    """
 ).to(device)
+model[0].running_mean.fill_(7.0 if rank == 1 else 0.0)

     find_unused_parameters=world_size > 2,
+    broadcast_buffers=False,
+    init_sync=False,
""",
    workload="batch_norm",
)
