"""A rank that fails waits for all others before it leaves; its error is lost in theirs (torchtitan#1342)."""

from workloads.planted import run

run("""
-        loss = nn.functional.cross_entropy(ddp(x_BF.to(device)), y_B.to(device))
+        try:
+            loss = nn.functional.cross_entropy(ddp(x_BF.to(device)), y_B.to(device))
+        except RuntimeError:
+            dist.barrier()
+            raise
""")
