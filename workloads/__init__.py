"""Training scripts for torchrun: each file is flat, runs by itself and knows nothing of the harness's rank side."""
