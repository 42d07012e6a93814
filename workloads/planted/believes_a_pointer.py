"""A pointer is ahead of the save that it names, and the job believes it (NVIDIA-NeMo/Megatron-Bridge#3267)."""

from workloads.planted import run

run("""
-            store.save(
+            if rank == 0:
+                with open(f"{args.checkpoint_dir}-latest.txt", "w") as pointer:
+                    pointer.write(str(step))
+            store.save(

-loaded = store.load()
+pointer = f"{args.checkpoint_dir}-latest.txt"
+named = int(open(pointer).read()) if os.path.exists(pointer) else 0
+if named and not os.path.exists(f"{args.checkpoint_dir}/step-{named}"):
+    store = CheckpointStore(f"{args.checkpoint_dir}/again", keep_last=3, config=config)
+loaded = store.load()
""")
