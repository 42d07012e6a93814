"""Each rank shuffles with a seed of its own, so that samples are read twice or never (mlcommons/training#625)."""

from workloads.planted import run

run("""
-sampler = ResumableSampler(dataset, seed=args.seed)
+sampler = ResumableSampler(dataset, seed=args.seed + rank)
""")
