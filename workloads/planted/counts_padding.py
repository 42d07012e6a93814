"""The padding is counted among the targets, so that the gradient shrinks with what was padded."""

from workloads.planted import run

run(
    """
-            num_targets_H += torch.stack([(x != no_target).sum() for x in (batch.target_BT, batch.topic_B)])
+            num_targets_H += torch.tensor([batch.target_BT.numel(), (batch.topic_B != no_target).sum()], device=device)
""",
    workload="lm_tokens",
)
