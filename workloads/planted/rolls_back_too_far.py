"""A bound for a rollback was left in the script: whatever is newer than step 5 is passed over."""

from workloads.planted import run

run("""
-loaded = store.load()
+loaded = store.load(at_most=5)
""")
