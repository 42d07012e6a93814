"""The loss is computed on the unwrapped model, so that gradients are never averaged (huggingface/trl#7245)."""

from workloads.planted import run

run("""
-        loss = nn.functional.cross_entropy(ddp(x_BF.to(device)), y_B.to(device))
+        loss = nn.functional.cross_entropy(model(x_BF.to(device)), y_B.to(device))
""")
