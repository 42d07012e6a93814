"""Each rank decides by its own metric when to stop, and rank 1 has enough first (speechbrain/speechbrain#1939)."""

from workloads.planted import run

run("""
+        if rank == 1 and step == 12:
+            args.steps = step
         if step == args.steps:
             break
""")
