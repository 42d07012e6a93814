"""Rank 1 passes over a micro-batch, and its windows are shifted by one for ever (NVIDIA-NeMo/Automodel#2468)."""

from workloads.planted import run

run(
    """
-    while step < args.steps and (window := list(itertools.islice(batches, args.accumulate))):
+    if rank == 1 and epoch == 0:
+        held = [next(batches)]
+        next(batches)
+        batches = itertools.chain(held, batches)
+    while step < args.steps and (window := list(itertools.islice(batches, args.accumulate))):
""",
    workload="lm_tokens",
)
