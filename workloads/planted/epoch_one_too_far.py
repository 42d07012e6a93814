"""A resumed epoch continues in the order of the next one (meta-pytorch/data#1513, huggingface/accelerate#2823)."""

from workloads.planted import run

run("""
-num_samples = 96  # with 2 ranks 6 updates an epoch, so that a short run sees several epochs
+num_samples = 10

-    sampler.set_epoch(epoch)
+    sampler.set_epoch(epoch if position == 0 else epoch + 1)
""")
