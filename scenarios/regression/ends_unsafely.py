"""ddp_mlp with the end of almost every example: the group is destroyed, but torch.distributed.nn was imported late."""

from workloads.planted import run

run("""
-import torch.distributed.nn  # before the group is made: imported later, its defaults pin the group and gloo never ends
""")
