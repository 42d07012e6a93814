"""The order is drawn from the global generator, which a resume sets to where it was later (wyim-pgl/transgenic#59)."""

from workloads.planted import run

run("""
-        return itertools.islice(super().__iter__(), self.position, None)
+        mine = list(super().__iter__())
+        return itertools.islice((mine[i] for i in torch.randperm(len(mine)).tolist()), self.position, None)
""")
