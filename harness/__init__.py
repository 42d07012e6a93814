"""Fault injection and recovery proofs for distributed PyTorch training.

Nothing is imported here: this package also runs inside every training process.
"""
