"""The loader of the held-out samples drops its last batch, as that of the training samples may."""

from workloads.planted import run

run(
    """
-held_out_loader = DataLoader(held_out, args.batch_size, sampler=shard, generator=torch.Generator())
+held_out_loader = DataLoader(held_out, args.batch_size, sampler=shard, drop_last=True, generator=torch.Generator())

-    if wrong := (num_counted_N != 1).nonzero().flatten().tolist():
+    if wrong := (num_counted_N > 1).nonzero().flatten().tolist():
""",
    workload="sharded_evaluation",
)
