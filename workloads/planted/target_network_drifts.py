"""A target that gradients do not reach follows the mean of each rank's own batch (HorizonRobotics/alf#1475)."""

from workloads.planted import run

run("""
-optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
+model.register_parameter("target", nn.Parameter(torch.zeros(num_features), requires_grad=False))
+optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)

         optimizer.step()
+        model.target.lerp_(x_BF.mean(dim=0), 0.1)
""")
