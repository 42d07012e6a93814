"""After the last update rank 1 waits for something that never comes."""

from workloads.planted import run

run("""
 import os
+import signal

 # ---- end
+if rank == 1:
+    signal.pause()
""")
