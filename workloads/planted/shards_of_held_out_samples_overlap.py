"""Each shard of the held-out samples ends after the first sample of the next one, which counts twice."""

from workloads.planted import run

run(
    """
-shard = range(rank, args.num_held_out, world_size)  # no padding: with fewer samples than ranks some have none
+size = args.num_held_out // world_size + 1
+shard = range(rank * size, min((rank + 1) * size + 1, args.num_held_out))

-    if wrong := (num_counted_N != 1).nonzero().flatten().tolist():
+    if wrong := (num_counted_N < 1).nonzero().flatten().tolist():
""",
    workload="sharded_evaluation",
)
