"""Once the resumed epoch is done, the next ones repeat its order (huggingface/accelerate#4233)."""

from workloads.planted import run

run("""
-    sampler.set_epoch(epoch)
+    sampler.set_epoch(epoch if loaded is None else loaded.own["sampler"]["epoch"])
""")
