"""Each rank seeds its initial weights by its number, and they are not broadcast (pytorch/pytorch#48188)."""

from workloads.planted import run

run("""
-torch.manual_seed(args.seed)  # the same initial weights on all ranks
+torch.manual_seed(args.seed + rank)

     find_unused_parameters=world_size > 2,
+    init_sync=False,
""")
