"""The loss that is reported is a running mean, which is in no checkpoint: after a restart it begins anew."""

from workloads.planted import run

run(
    """
         dist.all_reduce(totals)
+        mean = (totals[0] / totals[1]).item() if mean is None else 0.9 * mean + 0.1 * (totals[0] / totals[1]).item()

-            metrics.write(step, loss=(totals[0] / totals[1]).item(), samples=int(totals[1].item()))
+            metrics.write(step, loss=mean, samples=int(totals[1].item()))

 # ---- train
+mean = None
""",
    workload="sqlite_metrics",
)
