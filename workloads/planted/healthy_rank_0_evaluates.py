"""Healthy: rank 0 evaluates alone for 1.5 s while the others wait in the next collective."""

from workloads.planted import run

run("""
 import os
+import time

         step += 1
+        if rank == 0 and step == 7:
+            with torch.no_grad():
+                model.eval()(x_NF.to(device))
+            model.train()
+            time.sleep(1.5)
""")
