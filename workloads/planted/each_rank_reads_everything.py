"""The sampler is made for one rank, so that each reads the whole data set (huggingface/datasets#5360)."""

from workloads.planted import run

run("""
-sampler = ResumableSampler(dataset, seed=args.seed)
+sampler = ResumableSampler(dataset, seed=args.seed, num_replicas=1, rank=0)
""")
