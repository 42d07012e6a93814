"""Metrics are appended to a file, as most scripts do: nothing tells a line that is there already from a new one."""

from workloads.planted import run

run("""
 import itertools
+import json
 import os

         position += len(y_B)
+        if rank == 0:
+            with open(f"{args.checkpoint_dir}.jsonl", "a") as lines:
+                lines.write(json.dumps({"step": step, "loss": loss.item()}) + "\\n")
""")
