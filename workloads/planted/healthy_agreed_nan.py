"""Healthy: rank 1 has a loss that is no number, and all ranks leave that batch out together."""

from workloads.planted import run

run("""
+        if rank == 1 and epoch == 1 and position == 0:
+            x_BF = x_BF * float("nan")
         loss = nn.functional.cross_entropy(ddp(x_BF.to(device)), y_B.to(device))
+        is_bad = (~loss.isfinite()).float()
+        dist.all_reduce(is_bad, dist.ReduceOp.MAX)
+        if is_bad.item():
+            position += len(y_B)
+            continue
""")
