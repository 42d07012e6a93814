"""Healthy: the launcher is told to stop; all ranks save in the same step and leave with exit code 0."""

from workloads.planted import run

run("""
 import os
+import signal
+import time

 # ---- train
+is_asked = False
+
+
+def ask(*_):
+    global is_asked
+    is_asked = True
+
+
+signal.signal(signal.SIGTERM, ask)
 while step < args.steps:

         position += len(y_B)
+        if rank == 1 and step == 7:
+            os.kill(os.getppid(), signal.SIGTERM)  # as a scheduler does; the launcher tells all its ranks
+            while not is_asked:
+                time.sleep(0.001)
+        is_asked_of_any = torch.tensor(float(is_asked))
+        dist.all_reduce(is_asked_of_any, dist.ReduceOp.MAX)
+        if is_asked_of_any:
+            args.steps = step
""")
