"""Rank 1 reads larger batches, so that its loader is at its end before the others'."""

from workloads.planted import run

run("""
-loader = DataLoader(dataset, args.batch_size, sampler=sampler, generator=torch.Generator())
+loader = DataLoader(dataset, args.batch_size + 2 * rank, sampler=sampler, generator=torch.Generator())
""")
