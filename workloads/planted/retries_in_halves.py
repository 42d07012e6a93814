"""Rank 1 halves a batch that does not fit its memory, and reduces its gradients twice (mosaicml/composer#2117)."""

from workloads.planted import run

run("""
         loss.backward()
+        if rank == 1 and step == 6:
+            nn.functional.cross_entropy(ddp(x_BF.to(device)), y_B.to(device)).backward()
""")
