"""Rank 1 is stuck in step 7 and deaf to SIGTERM, so that the launcher waits for it after the others failed."""

from workloads.planted import run

run("""
 import os
+import signal

     for x_BF, y_B in loader:
+        while rank == 1 and step == 6:
+            signal.signal(signal.SIGTERM, signal.SIG_IGN)
+            signal.pause()
""")
