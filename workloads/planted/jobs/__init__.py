"""One small training job in several ways to save: each file is a saver for ``crashstates``, and a torchrun script.

So that what a crash state foretells can be seen come true in a whole job: see harness/_tests/test_end_to_end_states.py.
"""
