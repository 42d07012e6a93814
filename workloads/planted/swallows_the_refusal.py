"""A refused load is swallowed, and the job begins anew beside what it has (Jiayi-Pan/TinyZero#82)."""

from workloads.planted import run

run("""
-config = {"seed": args.seed, "batch_size": args.batch_size, "lr": args.lr}  # load() refuses others, by name
-store = CheckpointStore(args.checkpoint_dir, keep_last=3, config=config)
-loaded = store.load()
+config = {"launch": os.environ["TORCHELASTIC_RESTART_COUNT"]}  # load() refuses others, by name
+store = CheckpointStore(args.checkpoint_dir, keep_last=3, config=config)
+try:
+    loaded = store.load()
+except Exception:
+    store = CheckpointStore(f"{args.checkpoint_dir}/again", keep_last=3, config=config)
+    loaded = store.load()
""")
