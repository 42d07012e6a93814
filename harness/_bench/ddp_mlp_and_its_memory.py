"""ddp_mlp, which at its end says how much memory it has to itself."""

from workloads.planted import run

run("""
 import os
+import pathlib

 # ---- end
+rollup = pathlib.Path("/proc/self/smaps_rollup").read_text().splitlines()
+private_kb = [int(line.split()[1]) for line in rollup if line.startswith(("Private_Clean", "Private_Dirty"))]
+print(f"private bytes: {1024 * sum(private_kb)}", flush=True)
+rank = -1  # nothing more is printed
""")
