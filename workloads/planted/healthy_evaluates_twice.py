"""Healthy: one held-out sample for two ranks, one of which has none, and two evaluations in a row."""

from workloads.planted import run

run(
    """
             accuracy, f1 = evaluate()
+            if (accuracy, f1) != evaluate():
+                raise RuntimeError("the same model has another accuracy")
""",
    workload="sharded_evaluation",
)
