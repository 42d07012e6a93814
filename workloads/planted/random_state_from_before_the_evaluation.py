"""The random state that is saved is from before the evaluation, which draws (vllm-project/speculators#1026)."""

from workloads.planted import run

run(
    """
-held_out_loader = DataLoader(held_out, args.batch_size, sampler=shard, generator=torch.Generator())
+held_out_loader = DataLoader(held_out, args.batch_size, sampler=shard)  # each pass draws one number

-            accuracy, f1 = evaluate()
+            random_state = rng_state()
+            accuracy, f1 = evaluate()

-                own={"rng": rng_state(), "sampler": {"epoch": epoch, "position": position}},
+                own={"rng": random_state, "sampler": {"epoch": epoch, "position": position}},
""",
    workload="sharded_evaluation",
)
