"""Rank 2 alone averages its loss once: every later collective of the others meets the wrong one of rank 2."""

from workloads.planted import run

run("""
         step += 1
+        if rank == 2 and step == 7:
+            dist.all_reduce(loss.detach().clone())
""")
