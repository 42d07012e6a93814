"""Rank 0 alone loads the weights, after DistributedDataParallel has spread its own (pytorch/pytorch#111138)."""

from workloads.planted import run

run("""
-    model.load_state_dict(loaded.shared["model"])

 if loaded is not None:
+    if rank == 0:
+        model.load_state_dict(loaded.shared["model"])
     set_rng_state(loaded.own["rng"])  # last: nothing may draw between here and the next update
""")
