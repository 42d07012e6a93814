"""Healthy: a distributed sampler repeats held-out samples, and each counts once: what came first under its id."""

from workloads.planted import run

run(
    """
-shard = range(rank, args.num_held_out, world_size)  # no padding: with fewer samples than ranks some have none
+shard = DistributedSampler(held_out, shuffle=False)

         for id_B, x_BF, y_B in held_out_loader:
+            new_B = id_B // world_size * world_size + rank == id_B  # a repeated one is on another rank
+            id_B, x_BF, y_B = id_B[new_B], x_BF[new_B], y_B[new_B]
""",
    workload="sharded_evaluation",
)
