"""In step 7 rank 1 reduces by maximum what the others sum up: nothing fails, and all get garbage."""

from workloads.planted import run

run("""
         step += 1
+        is_odd = rank == 1 and step == 7
+        dist.all_reduce(loss.detach().clone(), dist.ReduceOp.MAX if is_odd else dist.ReduceOp.SUM)
""")
