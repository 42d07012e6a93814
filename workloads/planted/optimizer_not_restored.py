"""Only the parameters are restored, and the optimizer begins anew (pytorch/pytorch#5627)."""

from workloads.planted import run

run("""
-    optimizer.load_state_dict(loaded.shared["optimizer"])
""")
