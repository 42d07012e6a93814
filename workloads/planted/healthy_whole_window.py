"""Healthy: a job that is killed amid an accumulation window does the whole window again."""

from workloads.planted import run

run(
    """
-parser.add_argument("--accumulate", type=int, default=4, help="micro-batches a rank and update")
+parser.add_argument("--accumulate", type=int, default=2, help="micro-batches a rank and update")
""",
    workload="lm_tokens",
)
