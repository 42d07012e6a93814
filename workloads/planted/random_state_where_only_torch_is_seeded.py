"""Nobody seeds Python's generator, which never repeats; torch's does, and rank 1 does not restore it."""

from workloads.planted import run

run("""
-seed_rng(args.seed + 1 + rank)  # from here on dropout, which must differ between ranks
+torch.manual_seed(args.seed + 1 + rank)  # from here on dropout, which must differ between ranks

-    set_rng_state(loaded.own["rng"])  # last: nothing may draw between here and the next update
+    if rank != 1:
+        set_rng_state(loaded.own["rng"])  # last: nothing may draw between here and the next update
""")
