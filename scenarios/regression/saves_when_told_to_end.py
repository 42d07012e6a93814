"""ddp_mlp that answers SIGTERM: all ranks finish the update, save it, and leave with exit code 143, to start again.

Which rank hears first is chance, so the ranks agree after each update. WORKERS in the environment says how many
processes read the data of each rank; they inherit the handler, and end with their rank.
"""

from workloads.planted import run

run("""
-import torch
+import signal
+import sys
+
+import torch

-loader = DataLoader(dataset, args.batch_size, sampler=sampler, generator=torch.Generator())
+workers = int(os.environ.get("WORKERS", "0"))
+loader = DataLoader(dataset, args.batch_size, sampler=sampler, generator=torch.Generator(), num_workers=workers)

 # ---- train
-while step < args.steps:
+told = torch.zeros(1)  # by a signal, at any time
+ends = torch.zeros(1)  # agreed on
+signal.signal(signal.SIGTERM, lambda *_: told.fill_(1))
+while step < args.steps and not ends:
     sampler.set_epoch(epoch)

-        if step % args.save_every == 0 or step == args.steps:
+        ends = told.clone()
+        dist.all_reduce(ends, dist.ReduceOp.MAX)
+        if step % args.save_every == 0 or step == args.steps or ends:
             store.save(

-        if step == args.steps:
+        if step == args.steps or ends:
             break

 dist.destroy_process_group()
+if step < args.steps:
+    sys.exit(128 + signal.SIGTERM)
""")
