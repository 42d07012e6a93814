"""Training scripts for torchrun: each file is flat, runs by itself and knows nothing of the harness's rank side.

    ddp_mlp             the plainest: a small network on made-up data
    ddp_digits          convolutions on real handwritten digits, evaluated as it trains
    lm_tokens           a language model: padding, unequal targets, two losses, accumulated gradients
    mixed_precision     float16 with a gradient scaler and clipping; updates that all ranks skip together
    batch_norm          statistics that differ between ranks, and the rule which ones count
    sharded_evaluation  a metric that no number of ranks changes
    sqlite_metrics      effects outside the checkpoint, each of them once

All save the full state of every rank and end, wherever they were stopped, with the bytes of a run that was not.
"""
