"""The scheduler is restored and then advanced again by the steps done (THUDM/slime#1546)."""

from workloads.planted import run

run("""
     scheduler.load_state_dict(loaded.shared["scheduler"])
+    for _ in range(step):
+        scheduler.step()
""")
