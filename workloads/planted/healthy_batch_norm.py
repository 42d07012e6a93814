"""Healthy: batch normalisation keeps statistics of each rank's own data, so that buffers differ between updates."""

from workloads.planted import run

run("""
-model = nn.Sequential(nn.Linear(num_features, 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, 2)).to(device)
+model = nn.Sequential(nn.Linear(num_features, 128), nn.ReLU(), nn.BatchNorm1d(128), nn.Linear(128, 2)).to(device)
""")
