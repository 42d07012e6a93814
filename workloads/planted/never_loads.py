"""Each launch saves into a directory of its own and looks for nothing: a restart begins at step 0, and ends well."""

from workloads.planted import run

run("""
-store = CheckpointStore(args.checkpoint_dir, keep_last=3, config=config)
-loaded = store.load()
+launch = os.environ["TORCHELASTIC_RESTART_COUNT"]
+store = CheckpointStore(f"{args.checkpoint_dir}/launch-{launch}", keep_last=3, config=config)
+loaded = None
""")
