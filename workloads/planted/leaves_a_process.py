"""A helper process in a session of its own is started and never ended (dlrover#1331)."""

from workloads.planted import run

run("""
 import os
+import subprocess

 # ---- end
+subprocess.Popen(["sleep", "300"], start_new_session=True)
""")
