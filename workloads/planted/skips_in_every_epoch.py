"""The batches that a resumed epoch passes over are passed over in every later one (huggingface/accelerate#1451)."""

from workloads.planted import run

run("""
-    epoch, position = epoch + 1, 0
+    epoch, position = epoch + 1, 0 if loaded is None else loaded.own["sampler"]["position"]
""")
