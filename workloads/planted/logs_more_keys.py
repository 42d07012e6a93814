"""Rank 1 logs a metric that the others do not have: one reduction a key (Lightning-AI/pytorch-lightning#19106)."""

from workloads.planted import run

run("""
         step += 1
+        metrics = {"loss": loss.item()} | ({"clipped": 1.0} if rank == 1 and step == 7 else {})
+        for key in sorted(metrics):
+            dist.all_reduce(torch.tensor(metrics[key]))
""")
