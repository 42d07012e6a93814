"""All ranks read the same samples and reduce nothing: the numbers look right, what was sent does not."""

from workloads.planted import run

run(
    """
-sampler = ResumableSampler(dataset, seed=args.seed)
+sampler = ResumableSampler(dataset, 1, 0, seed=args.seed)

-seed_rng(args.seed + 1 + rank)  # from here on dropout, which must differ between ranks
+seed_rng(args.seed + 1)

-        dist.all_reduce(num_targets_H)

-            with contextlib.nullcontext() if number == len(window) else ddp.no_sync():
+            with ddp.no_sync():

-                (world_size * mean).backward()  # DDP divides by the number of ranks, and no target should be
+                mean.backward()
""",
    workload="lm_tokens",
)
