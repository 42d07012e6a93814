"""Each rank evaluates all held-out samples, and their counts are added up as if each had had its share."""

from workloads.planted import run

run(
    """
-shard = range(rank, args.num_held_out, world_size)  # no padding: with fewer samples than ranks some have none
+shard = range(args.num_held_out)

-    if wrong := (num_counted_N != 1).nonzero().flatten().tolist():
+    if wrong := (num_counted_N < 1).nonzero().flatten().tolist():
""",
    workload="sharded_evaluation",
)
