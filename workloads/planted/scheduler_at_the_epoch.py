"""The scheduler's state is not saved, and a resumed one begins at the epoch's number (vllm-project/speculators#900)."""

from workloads.planted import run

run("""
-scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=lr_period)
+warm_up = lambda t: min(1, t / 10)
+scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, warm_up)

-    scheduler.load_state_dict(loaded.shared["scheduler"])
+    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, warm_up, last_epoch=loaded.shared["progress"]["epoch"])
""")
