"""Each rank makes its sampler without saying which rank it is, and all read one half (mlcommons/training#625)."""

from workloads.planted import run

run("""
-sampler = ResumableSampler(dataset, seed=args.seed)
+sampler = ResumableSampler(dataset, seed=args.seed, num_replicas=world_size, rank=0)
""")
