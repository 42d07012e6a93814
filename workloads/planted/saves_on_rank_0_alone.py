"""A save in which all ranks take part is called on rank 0 alone (deepspeedai/DeepSpeed#801)."""

from workloads.planted import run

run("""
-        if step % args.save_every == 0 or step == args.steps:
+        if rank == 0 and (step % args.save_every == 0 or step == args.steps):
""")
