"""Rank 1 reduces two metrics of equal shape in the other order: each becomes a mixture of both."""

from workloads.planted import run

run("""
         step += 1
+        if step == 7:
+            for metric in (loss.detach().clone(), loss.detach().double())[:: -1 if rank == 1 else 1]:
+                dist.all_reduce(metric)
""")
