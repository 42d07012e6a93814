"""The weights of a save are fresh, the optimizer's state is that of the first one (NVIDIA-NeMo/RL#4183)."""

from workloads.planted import run

run("""
+            if gathered is None:
+                gathered = copy.deepcopy(optimizer.state_dict())
             store.save(

-                    "optimizer": optimizer.state_dict(),
+                    "optimizer": gathered,

 import argparse
+import copy

 # ---- train
+gathered = None
""")
