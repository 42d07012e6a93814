"""A checkpoint is named after the step to come, so that a resume leaves that one out (deepset-ai/FARM#279)."""

from workloads.planted import run

run("""
-                step,
+                step + 1,
""")
