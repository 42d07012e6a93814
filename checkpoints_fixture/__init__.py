"""Sound and damaged checkpoint directories, each with the verdict that a reader must come to.

    sound       one sound directory, made by the store itself
    states      what a crash, a disk, a person or an attacker makes of it: one function a state
    expected    expected.toml: for each state what loads, and the verdict of every entry
    ranks       ranks as threads, so that building takes milliseconds

``python -m checkpoints_fixture DIR`` builds them all below DIR.
"""
