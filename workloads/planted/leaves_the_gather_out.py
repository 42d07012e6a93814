"""Rank 0 does not need the gathered metrics and leaves the reduction out (huggingface/accelerate#3861)."""

from workloads.planted import run

run(
    """
-    dist.all_reduce(confusion_CC)
+    if rank != 0:
+        dist.all_reduce(confusion_CC)
""",
    workload="sharded_evaluation",
)
