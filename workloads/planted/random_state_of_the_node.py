"""The random state's file is named after the node, and the ranks of one share it (NVIDIA/Megatron-LM#7413)."""

from workloads.planted import run

run("""
-    set_rng_state(loaded.own["rng"])  # last: nothing may draw between here and the next update
+    saved = [None] * world_size
+    dist.all_gather_object(saved, loaded.own["rng"])
+    set_rng_state(saved[rank // 2 * 2])  # last: nothing may draw between here and the next update
""")
