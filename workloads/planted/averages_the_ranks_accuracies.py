"""Each rank divides by its own count, and the mean of the ranks' accuracies is reported."""

from workloads.planted import run

run(
    """
     model.train()
+    mine_C = confusion_CC.diagonal()
+    mean = (mine_C.sum() / confusion_CC.sum().clamp(min=1)).double() / world_size
+    dist.all_reduce(mean)

-    return right_C.sum().item() / args.num_held_out, f1_C.mean().item()
+    return mean.item(), f1_C.mean().item()
""",
    workload="sharded_evaluation",
)
