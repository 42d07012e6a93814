"""Every backward pass is in no_sync(), the last one too: each rank trains a model of its own."""

from workloads.planted import run

run(
    """
-            with contextlib.nullcontext() if number == len(window) else ddp.no_sync():
+            with ddp.no_sync():
""",
    workload="lm_tokens",
)
