"""Each rank shuffles its own part, and all restore the loader's state of rank 0 (PrimeIntellect-ai/prime-rl#1035)."""

from workloads.planted import run

run("""
-        return itertools.islice(super().__iter__(), self.position, None)
+        mine, self.begun = list(super().__iter__()), shuffling.get_state()
+        order = torch.randperm(len(mine), generator=shuffling).tolist()
+        return itertools.islice((mine[i] for i in order), self.position, None)

 dataset = TensorDataset(x_NF, y_N)
+shuffling = torch.Generator().manual_seed(rank)

     scheduler.load_state_dict(loaded.shared["scheduler"])
+    shuffling.set_state(loaded.shared["shuffling"])

                     "scheduler": scheduler.state_dict(),
+                    "shuffling": sampler.begun,  # of rank 0: what is shared is
""")
