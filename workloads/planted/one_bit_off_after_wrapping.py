"""One weight of rank 1 is a rounding step off once it was wrapped (pytorch/pytorch#48188)."""

from workloads.planted import run

run("""
+if rank == 1:
+    with torch.no_grad():
+        model[0].bias[0].nextafter_(torch.tensor(1.0))
 if loaded is not None:
     set_rng_state(loaded.own["rng"])  # last: nothing may draw between here and the next update
""")
