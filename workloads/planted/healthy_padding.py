"""Healthy: 95 samples on two ranks; the sampler repeats one of them to make the shards equal."""

from workloads.planted import run

run("""
-num_samples = 96  # with 2 ranks 6 updates an epoch, so that a short run sees several epochs
+num_samples = 95  # with 2 ranks 6 updates an epoch, so that a short run sees several epochs
""")
