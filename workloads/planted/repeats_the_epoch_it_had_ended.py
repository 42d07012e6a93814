"""A checkpoint of an epoch's end begins that epoch again (Lightning-AI/pytorch-lightning#850)."""

from workloads.planted import run

run("""
     if position == sampler.num_samples:  # saved after the last batch of an epoch
-        epoch, position = epoch + 1, 0
+        position = 0
""")
