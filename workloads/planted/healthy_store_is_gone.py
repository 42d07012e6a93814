"""Healthy: rank 1 asks for the rendezvous store when all is done and it is gone (pytorch/pytorch#69520)."""

from workloads.planted import run

run("""
 dist.destroy_process_group()
+if rank == 1:
+    try:
+        dist.TCPStore(os.environ["MASTER_ADDR"], 1, timeout=__import__("datetime").timedelta(seconds=0.2))
+    except dist.DistError as error:
+        print(f"the store is gone: {error}", flush=True)
""")
