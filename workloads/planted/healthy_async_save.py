"""Healthy: saves go on beside the training, and the script waits for the last one before it destroys the group."""

from workloads.planted import run

run("""
-            store.save(
+            store.async_save(

 # ---- end
+store.wait()
""")
