"""A restart removes the newest checkpoint, taking it for the rest of a save that was cut short (google/orbax#394)."""

from workloads.planted import run

run("""
 import os
+import shutil

 store = CheckpointStore(args.checkpoint_dir, keep_last=3, config=config)
+if rank == 0 and (saved := sorted(store.root.glob("step-*"), key=os.path.getmtime)):
+    shutil.rmtree(saved[-1])
""")
