"""A layer is frozen when the model is wrapped and trained later: its gradients are not reduced (open-mmlab/mmdetection#4582)."""

from workloads.planted import run

run("""
+model[0].requires_grad_(False)
 ddp = DistributedDataParallel(

 # ---- train
+model[0].requires_grad_(True)
 while step < args.steps:
""")
