"""Rank 1 leaves out samples by their content, so that it has fewer batches than rank 0."""

from workloads.planted import run

run("""
-        return itertools.islice(super().__iter__(), self.position, None)
+        mine = itertools.islice(super().__iter__(), self.position, None)
+        return (i for i in mine if rank == 0 or y_N[i] == 1)
""")
