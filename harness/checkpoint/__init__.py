"""Checkpoints that survive a crash: what they are on disk, who judges them, who writes and loads them.

Standard library only, so that the controller can use them:
    format      the on-disk format in one place; re-exports layout, judge and the table of failpoints
    layout      names, manifest, marker
    judge       what each entry of a checkpoint directory is worth
    points      the named places of a save and a load, and how the harness looks in
    files       descriptors that follow no link, writes that hash, directories made durable
    owner       one live writer a directory
    retention   which checkpoints go, and how

With torch, for training scripts:
    store       CheckpointStore: save and load, all ranks together
    pending     a save that goes on beside the training
    publishing  rank 0's part of a save
    reading     one candidate of a load
    parts       one file of a checkpoint, written and read
    exchange    how the ranks vote
    rng         every random state that a training step may draw from
"""
