"""Healthy: after a restart the lines of the updates that will be done again are cut off; each has the time of day."""

from workloads.planted import run

run("""
 import itertools
+import json
 import os
+import time
+from pathlib import Path

 # ---- train
+lines = Path(f"{args.checkpoint_dir}.jsonl")
+if rank == 0:
+    kept = lines.read_text().splitlines(keepends=True)[:step] if lines.exists() else []
+    lines.write_text("".join(kept))

         position += len(y_B)
+        if rank == 0:
+            with lines.open("a") as file:
+                file.write(json.dumps({"step": step, "loss": loss.item(), "time_s": time.time()}) + "\\n")
""")
