"""What is left of an epoch is read in the order of epoch 0, whichever epoch it is (huggingface/accelerate#4071)."""

from workloads.planted import run

run("""
-num_samples = 96  # with 2 ranks 6 updates an epoch, so that a short run sees several epochs
+num_samples = 16

-    sampler.set_epoch(epoch)
+    sampler.set_epoch(epoch if position == 0 else 0)
""")
