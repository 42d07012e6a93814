"""A layer is frozen when the model is wrapped and trained later, and DDP does not reduce its gradients."""

from workloads.planted import run

run("""
+model[0].requires_grad_(False)
 ddp = DistributedDataParallel(

 # ---- train
+model[0].requires_grad_(True)
 while step < args.steps:
""")
