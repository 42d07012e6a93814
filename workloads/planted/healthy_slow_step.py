"""Healthy: rank 1 takes 1.5 s for one update, less than a collective may take."""

from workloads.planted import run

run("""
 import os
+import time

     for x_BF, y_B in loader:
+        if rank == 1 and step == 6:
+            time.sleep(1.5)
""")
