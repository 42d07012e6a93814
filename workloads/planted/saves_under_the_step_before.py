"""A checkpoint is named before the step is counted, so that a resume makes an update twice (deepset-ai/FARM#279)."""

from workloads.planted import run

run("""
-                step,
+                step - 1,
""")
