"""Rank 1 leaves a bad batch out alone, and is one ahead from then on (Lightning-AI/pytorch-lightning#5243)."""

from workloads.planted import run

run("""
         optimizer.zero_grad()
+        if rank == 1 and epoch == 1 and position == 0:
+            position += len(y_B)
+            continue
""")
