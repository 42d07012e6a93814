"""The epoch is restored and the position in it is not: its first batches are read again."""

from workloads.planted import run

run("""
-    epoch, position = loaded.own["sampler"]["epoch"], loaded.own["sampler"]["position"]
+    epoch, position = loaded.own["sampler"]["epoch"], 0
""")
