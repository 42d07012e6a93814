"""A resumed run does all of --steps again, beside those that were done before."""

from workloads.planted import run

run("""
     step = loaded.step
+    args.steps += step
""")
