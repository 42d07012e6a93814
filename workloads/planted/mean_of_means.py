"""Each micro-batch has its own mean, so that a target of a short one counts more (huggingface/transformers#34242)."""

from workloads.planted import run

run(
    """
-                mean = (weight_H * sum_H / num_targets_H.clamp(min=1)).sum()
+                num_H = torch.stack([(x != no_target).sum() for x in (batch.target_BT, batch.topic_B)])
+                mean = (weight_H * sum_H / num_H.clamp(min=1)).sum() / len(window)
-                (world_size * mean).backward()  # DDP divides by the number of ranks, and no target should be
+                mean.backward()
""",
    workload="lm_tokens",
)
