"""What may become of a sound directory: one function a state, which damages ``root`` in place.

    base        how a state is declared; small damages
    contents    what is wrong inside one checkpoint: marker, manifest, data
    directory   what was left beside the checkpoints, and directories with nothing to load
    hostile     what an attacker makes of it

Every choice is fixed (the middle byte, the last third), so that a state is the same each time it is made. C and a
number name the crash states that this project was planned with.
"""

from __future__ import annotations

from checkpoints_fixture.states import contents as contents
from checkpoints_fixture.states import directory as directory
from checkpoints_fixture.states import hostile as hostile
from checkpoints_fixture.states.base import CODES as CODES
from checkpoints_fixture.states.base import STATES as STATES
from checkpoints_fixture.states.base import make_state as make_state
