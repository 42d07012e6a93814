"""Healthy: the launcher is told to stop; all ranks save in the same step and leave with exit code 0."""

from workloads.planted import run

run("""
 import os
+import signal
+import sys

 # ---- train
+is_asked = torch.zeros(1, device=device)
+signal.signal(signal.SIGTERM, lambda *_: is_asked.fill_(1))
 while step < args.steps:

         position += len(y_B)
-        if step % args.save_every == 0 or step == args.steps:
+        if rank == 1 and step == 7:
+            os.kill(os.getppid(), signal.SIGTERM)  # as a scheduler does
+        dist.all_reduce(is_asked, dist.ReduceOp.MAX)
+        if step % args.save_every == 0 or step == args.steps or is_asked:

-        if step == args.steps:
+        if is_asked:
+            args.steps = step
+        if step == args.steps:
""")
