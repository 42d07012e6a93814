"""The store on 4 ranks."""

from workloads.savers.store import load, save

__all__ = ["load", "ranks", "save"]

ranks = 4
