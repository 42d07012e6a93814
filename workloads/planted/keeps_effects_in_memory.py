"""Rows wait in memory for a few updates, as loggers make them: those of before a checkpoint die with the process."""

from workloads.planted import run

run(
    """
-        if metrics is not None:
-            metrics.write(step, loss=(totals[0] / totals[1]).item(), samples=int(totals[1].item()))
+        waiting.append((step, (totals[0] / totals[1]).item(), int(totals[1].item())))
+        if metrics is not None and (step % 4 == 0 or step == args.steps):
+            for row in waiting:
+                metrics.write(*row)
+            waiting.clear()

 # ---- train
+waiting = []
""",
    workload="sqlite_metrics",
)
