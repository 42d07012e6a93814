"""The state is gathered for the first save, and saved again by every later one (NVIDIA-NeMo/RL#3312)."""

from workloads.planted import run

run("""
+            if gathered is None:
+                gathered = copy.deepcopy((model.state_dict(), optimizer.state_dict(), scheduler.state_dict()))
             store.save(

-                    "model": model.state_dict(),
-                    "optimizer": optimizer.state_dict(),
-                    "scheduler": scheduler.state_dict(),
+                    "model": gathered[0],
+                    "optimizer": gathered[1],
+                    "scheduler": gathered[2],

 import argparse
+import copy

 # ---- train
+gathered = None
""")
