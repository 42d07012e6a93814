"""Random states are saved as if ranks were replicas: all of them restore that of rank 0 (NVIDIA/Megatron-LM#6858)."""

from workloads.planted import run

run("""
-    set_rng_state(loaded.own["rng"])  # last: nothing may draw between here and the next update
+    saved = [loaded.own["rng"]]
+    dist.broadcast_object_list(saved)
+    set_rng_state(saved[0])  # last: nothing may draw between here and the next update
""")
