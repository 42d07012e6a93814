"""Healthy: beside each checkpoint the weights are exported by torch.save, for others; the job never reads them."""

from workloads.planted import run

run("""
         if step % args.save_every == 0 or step == args.steps:
+            if rank == 0:
+                torch.save(model.state_dict(), f"{args.checkpoint_dir}-weights.pt")
""")
