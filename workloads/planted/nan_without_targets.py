"""A micro-batch without a target has the mean 0 / 0, and spoils all weights."""

from workloads.planted import run

run(
    """
-                mean = (weight_H * sum_H / num_targets_H.clamp(min=1)).sum()
+                num_H = torch.stack([(x != no_target).sum() for x in (batch.target_BT, batch.topic_B)])
+                mean = (weight_H * sum_H / num_H).sum() / len(window)
-                (world_size * mean).backward()  # DDP divides by the number of ranks, and no target should be
+                mean.backward()
""",
    workload="lm_tokens",
)
