"""The shards of the held-out samples end one too early: the last one is on no rank."""

from workloads.planted import run

run(
    """
-shard = range(rank, args.num_held_out, world_size)  # no padding: with fewer samples than ranks some have none
+shard = range(rank, args.num_held_out - 1, world_size)

-    if wrong := (num_counted_N != 1).nonzero().flatten().tolist():
+    if wrong := (num_counted_N > 1).nonzero().flatten().tolist():
""",
    workload="sharded_evaluation",
)
