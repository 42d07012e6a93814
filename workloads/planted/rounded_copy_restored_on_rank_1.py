"""Rank 1 restores a copy that was rounded to bfloat16, and nothing spreads the right one (NVIDIA/Megatron-LM#6920)."""

from workloads.planted import run

run("""
 if loaded is not None:
+    if rank == 1:
+        model.load_state_dict({name: x.bfloat16() for name, x in loaded.shared["model"].items()})
     set_rng_state(loaded.own["rng"])  # last: nothing may draw between here and the next update
""")
