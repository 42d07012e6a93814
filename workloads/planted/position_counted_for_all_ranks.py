"""The position is counted over all ranks, and each of them passes over as many samples (meta-pytorch/torchft#292)."""

from workloads.planted import run

run("""
-    epoch, position = loaded.own["sampler"]["epoch"], loaded.own["sampler"]["position"]
+    epoch, position = divmod(loaded.shared["progress"]["samples"], num_samples)
""")
