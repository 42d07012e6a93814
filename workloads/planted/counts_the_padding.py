"""The held-out samples that a distributed sampler repeats, to make the shards equal, are counted like all others."""

from workloads.planted import run

run(
    """
-shard = range(rank, args.num_held_out, world_size)  # no padding: with fewer samples than ranks some have none
+shard = DistributedSampler(held_out, shuffle=False)

-    if wrong := (num_counted_N != 1).nonzero().flatten().tolist():
+    if wrong := (num_counted_N < 1).nonzero().flatten().tolist():

-    return right_C.sum().item() / args.num_held_out, f1_C.mean().item()
+    return (right_C.sum() / confusion_CC.sum()).item(), f1_C.mean().item()
""",
    workload="sharded_evaluation",
)
