"""set_epoch is never called, so that every epoch has the same order (pytorch-lightning#224)."""

from workloads.planted import run

run("""
-    sampler.set_epoch(epoch)
""")
