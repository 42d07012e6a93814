"""Each rank decides by its own metric when to stop, and rank 1 has enough first (speechbrain/speechbrain#1939)."""

from workloads.planted import run

run("""
-        if step == args.steps:
+        if step == args.steps or (rank == 1 and step == 12):
             break
     epoch, position = epoch + 1, 0
+    if rank == 1 and epoch == 2:
+        break
""")
