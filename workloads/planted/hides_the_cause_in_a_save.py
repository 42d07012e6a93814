"""A failing rank tells the others of a checkpoint, and its error is lost (Lightning-AI/pytorch-lightning#6430)."""

from workloads.planted import run

run("""
-        loss = nn.functional.cross_entropy(ddp(x_BF.to(device)), y_B.to(device))
+        try:
+            loss = nn.functional.cross_entropy(ddp(x_BF.to(device)), y_B.to(device))
+        except RuntimeError:
+            dist.broadcast_object_list([args.checkpoint_dir], src=rank)
+            raise
""")
