"""The batches to pass over are counted without the micro-batches of an update (huggingface/transformers#5605)."""

from workloads.planted import run

run(
    """
-    epoch, position = loaded.own["sampler"]["epoch"], loaded.own["sampler"]["position"]
+    epoch, position = loaded.own["sampler"]["epoch"], loaded.own["sampler"]["position"] // args.accumulate
""",
    workload="lm_tokens",
)
