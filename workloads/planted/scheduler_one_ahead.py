"""The scheduler is restored and then advanced once more; nothing is replayed that could tell (radixark/miles#1627)."""

from workloads.planted import run

run("""
     scheduler.load_state_dict(loaded.shared["scheduler"])
+    scheduler.step()
""")
