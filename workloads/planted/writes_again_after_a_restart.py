"""The number of the launch is part of an effect's key: what is done again after a restart is written again."""

from workloads.planted import run

run(
    """
-                run_id TEXT, step INTEGER, loss REAL, samples INTEGER, launch INTEGER, PRIMARY KEY (run_id, step)
+                run_id TEXT, step INTEGER, loss REAL, samples INTEGER, launch INTEGER,
+                PRIMARY KEY (run_id, step, launch)
""",
    workload="sqlite_metrics",
)
