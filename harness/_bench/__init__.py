"""The budgets of speed and memory, measured: ``python -m harness._bench`` prints them as ratios within one run.

Machines are noisy and differ, so each figure stands beside one of the same kind taken at the same time, and nothing
here is a test.
"""
