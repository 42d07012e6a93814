"""Of the random states torch's alone is restored, and augmentation draws from Python's (redai-studio/Relax#317)."""

from workloads.planted import run

run("""
 import os
+import random

-        loss = nn.functional.cross_entropy(ddp(x_BF.to(device)), y_B.to(device))
+        x_BF = x_BF + random.gauss(0, 0.1)
+        loss = nn.functional.cross_entropy(ddp(x_BF.to(device)), y_B.to(device))

-    set_rng_state(loaded.own["rng"])  # last: nothing may draw between here and the next update
+    torch.set_rng_state(loaded.own["rng"]["torch"])
""")
