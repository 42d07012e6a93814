"""What workloads minimize: for scenarios that state a [gradient]. Each file has ``losses(model, batch)``."""
