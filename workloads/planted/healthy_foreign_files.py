"""Healthy: people have put files and directories of their own beside the checkpoints."""

from workloads.planted import run

run("""
 store = CheckpointStore(args.checkpoint_dir, keep_last=3, config=config)
+if rank == 0:
+    (store.root / "notes").mkdir(parents=True, exist_ok=True)
+    (store.root / "todo.txt").write_text("keep me")
""")
