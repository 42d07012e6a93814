"""Any error of an update is caught, and the batch left out: what was injected never comes to the surface."""

from workloads.planted import run

run("""
-        loss = nn.functional.cross_entropy(ddp(x_BF.to(device)), y_B.to(device))
+        try:
+            loss = nn.functional.cross_entropy(ddp(x_BF.to(device)), y_B.to(device))
+        except RuntimeError:
+            continue
""")
