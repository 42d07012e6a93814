"""What is true of an evaluation: for scenarios that state a [metric]. Each file has ``metric(model, dataset)``."""
