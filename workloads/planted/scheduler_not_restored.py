"""The scheduler begins anew beside restored parameters and moments."""

from workloads.planted import run

run("""
-    scheduler.load_state_dict(loaded.shared["scheduler"])
""")
