"""Rank 1 builds a model with one parameter less than the others (pytorch/pytorch#68803)."""

from workloads.planted import run

run("""
-model = nn.Sequential(nn.Linear(num_features, 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, 2)).to(device)
+model = nn.Sequential(nn.Linear(num_features, 128, bias=rank != 1), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, 2))
""")
