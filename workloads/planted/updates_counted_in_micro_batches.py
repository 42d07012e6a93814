"""A resumed job takes the updates done times the micro-batches of each for its step (huggingface/diffusers#3506)."""

from workloads.planted import run

run(
    """
-    step = loaded.step
+    step = loaded.step * args.accumulate
""",
    workload="lm_tokens",
)
