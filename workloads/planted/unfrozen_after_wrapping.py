"""A bias is frozen when DDP wraps the model, and trained nevertheless: it is never reduced."""

from workloads.planted import run

run("""
+model[0].bias.requires_grad_(False)
 ddp = DistributedDataParallel(

+model[0].bias.requires_grad_(True)
 # ---- train
""")
