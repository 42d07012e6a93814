"""The sum of the losses is divided by the number of sequences, not of targets (allenai/open-instruct#1137)."""

from workloads.planted import run

run(
    """
-                mean = (weight_H * sum_H / num_targets_H.clamp(min=1)).sum()
+                num_sequences_seen = world_size * sum(len(batch.token_BT) for batch in window)
+                mean = (weight_H * sum_H / num_sequences_seen).sum()
""",
    workload="lm_tokens",
)
