"""The scheduler and the moments are restored, the optimizer's learning rate is not (THUDM/slime#1761)."""

from workloads.planted import run

run("""
-lr_period = 200  # updates until the cosine reaches 0; not --steps, so that a longer run begins like a shorter one
+lr_period = 100

-    optimizer.load_state_dict(loaded.shared["optimizer"])
+    optimizer.load_state_dict({**optimizer.state_dict(), "state": loaded.shared["optimizer"]["state"]})
""")
