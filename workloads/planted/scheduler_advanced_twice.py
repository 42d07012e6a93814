"""The scheduler is restored and then advanced again by the steps done (THUDM/slime#1546)."""

from workloads.planted import run

run("""
-lr_period = 200  # updates until the cosine reaches 0; not --steps, so that a longer run begins like a shorter one
+lr_period = 100

     scheduler.load_state_dict(loaded.shared["scheduler"])
+    for _ in range(step):
+        scheduler.step()
""")
