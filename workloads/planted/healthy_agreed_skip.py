"""Healthy: rank 1 has a bad batch, all ranks hear of it and leave that update out together."""

from workloads.planted import run

run("""
         loss.backward()
+        is_bad = torch.tensor(float(rank == 1 and epoch == 1 and position == 0))
+        dist.all_reduce(is_bad.to(device), dist.ReduceOp.MAX)
+        if is_bad.item():
+            position += len(y_B)
+            continue
""")
