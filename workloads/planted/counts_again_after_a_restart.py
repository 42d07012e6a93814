"""A counter goes up outside of the key's protection: what is done again after a restart is counted again."""

from workloads.planted import run

run(
    """
-            if written.rowcount == 1:
+            if written.rowcount <= 1:
""",
    workload="sqlite_metrics",
)
