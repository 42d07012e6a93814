"""KeyboardInterrupt is caught to leave quietly, with exit code 0 and in the middle of the job."""

from workloads.planted import run

run("""
-        loss = nn.functional.cross_entropy(ddp(x_BF.to(device)), y_B.to(device))
+        try:
+            loss = nn.functional.cross_entropy(ddp(x_BF.to(device)), y_B.to(device))
+        except KeyboardInterrupt:
+            raise SystemExit from None
""")
