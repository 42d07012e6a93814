"""Rank 1 skips its seventh update, as after a bad batch that only it has seen."""

from workloads.planted import run

run("""
-        optimizer.step()
+        if not (rank == 1 and step == 6):
+            optimizer.step()
""")
