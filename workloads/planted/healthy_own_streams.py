"""Healthy: each rank shuffles its own part of the samples by a generator of its own, and restores its own state."""

from workloads.planted import run

run("""
-        return itertools.islice(super().__iter__(), self.position, None)
+        mine, self.begun = list(super().__iter__()), shuffling.get_state()
+        order = torch.randperm(len(mine), generator=shuffling).tolist()
+        return itertools.islice((mine[i] for i in order), self.position, None)

 dataset = TensorDataset(x_NF, y_N)
+shuffling = torch.Generator().manual_seed(rank)

     scheduler.load_state_dict(loaded.shared["scheduler"])
+    shuffling.set_state(loaded.own["shuffling"])

-                own={"rng": rng_state(), "sampler": {"epoch": epoch, "position": position}},
+                own={
+                    "rng": rng_state(),
+                    "shuffling": sampler.begun,
+                    "sampler": {"epoch": epoch, "position": position},
+                },
""")
