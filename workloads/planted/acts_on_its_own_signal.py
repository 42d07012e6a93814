"""Each rank saves when it has seen the signal, and they see it at different steps (NVIDIA-NeMo/Automodel#3007)."""

from workloads.planted import run

run("""
-        if step % args.save_every == 0 or step == args.steps:
+        if step == 7 + (rank == 1) or step == args.steps:
""")
