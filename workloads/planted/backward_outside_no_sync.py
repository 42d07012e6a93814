"""Only the forward pass is in no_sync(), and that one decides: nothing is reduced (pytorch/PiPPy#1133)."""

from workloads.planted import run

run(
    """
-            with contextlib.nullcontext() if number == len(window) else ddp.no_sync():
+            with ddp.no_sync():

-                (world_size * mean).backward()  # DDP divides by the number of ranks, and no target should be
+            (world_size * mean).backward()
""",
    workload="lm_tokens",
)
