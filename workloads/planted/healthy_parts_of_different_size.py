"""Healthy: what belongs to each rank alone is of another size on each."""

from workloads.planted import run

run("""
-                own={"rng": rng_state(), "sampler": {"epoch": epoch, "position": position}},
+                own={
+                    "rng": rng_state(),
+                    "sampler": {"epoch": epoch, "position": position},
+                    "cache": torch.zeros(5000 * rank),
+                },
""")
