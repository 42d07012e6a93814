"""Only rank 0 restores the optimizer; parameters are spread by DistributedDataParallel, its moments are not."""

from workloads.planted import run

run("""
-    optimizer.load_state_dict(loaded.shared["optimizer"])
+    if rank == 0:
+        optimizer.load_state_dict(loaded.shared["optimizer"])
""")
