"""The job is over before it comes to where the fault is planned: it shows nothing of recovery."""

from workloads.planted import run

run("""
 args = parser.parse_args()
+args.steps //= 2
""")
