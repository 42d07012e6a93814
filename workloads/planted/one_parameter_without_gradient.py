"""Rank 1 has no gradient for one parameter, and its optimizer leaves that one out (pytorch/pytorch#174862)."""

from workloads.planted import run

run("""
         loss.backward()
+        if rank == 1 and step == 6:
+            model[0].bias.grad = None
""")
