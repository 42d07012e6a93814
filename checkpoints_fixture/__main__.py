"""Build every state below a new directory: ``python -m checkpoints_fixture DIR``."""

from __future__ import annotations

import sys
from pathlib import Path

from checkpoints_fixture.expected import load_expected
from checkpoints_fixture.sound import make_sound
from checkpoints_fixture.states import STATES, make_state


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print("usage: python -m checkpoints_fixture DIR", file=sys.stderr)
        return 2
    top = Path(arguments[0])
    top.mkdir(parents=True)
    make_sound(top / "made")
    for name, expected in load_expected().items():
        home = top / name  # a state may put something beside its root
        home.mkdir()
        make_state(name, top / "made", home / "checkpoints")
        print(f"{home / 'checkpoints'}: loads {expected.load}")
    print(f"{len(STATES)} states")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
