"""The script asks for no checkpoint, and a restart begins at step 0 without a word."""

from workloads.planted import run

run("""
-loaded = store.load()
+loaded = None
""")
