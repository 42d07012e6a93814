"""A file of shared memory is made and never removed, but for the one of the run before."""

from workloads.planted import run

run("""
 import os
+import pathlib

 # ---- end
+if rank == 0:
+    for old in pathlib.Path("/dev/shm").glob("planted-bug-*"):
+        old.unlink()
+    pathlib.Path("/dev/shm", f"planted-bug-{os.getpid()}").write_bytes(bytes(64))
""")
