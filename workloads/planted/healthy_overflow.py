"""Healthy: gradients overflow, and all ranks skip the update and halve their scales together."""

from workloads.planted import run

run(
    """
-scaler = torch.amp.GradScaler(device.type, init_scale=args.scale, growth_interval=6)
+scaler = torch.amp.GradScaler(device.type, init_scale=args.scale, growth_interval=2)
""",
    workload="mixed_precision",
)
