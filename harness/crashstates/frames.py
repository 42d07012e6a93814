"""Fates that come to the same: what was lost of a file does not matter where nothing has its name.

A frame is one tree of names with the files that can be seen in it. All states of a situation are its frames, each with
every combination of the fates of those files; there are far fewer of them than combinations of all fates.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

from harness.crashstates.models import Situation


@dataclass(slots=True)
class Frame:
    """One tree of names.

    Attributes:
        chosen: fates of the changes of names that lead to it; all files are kept.
        files: the units of the files that can be seen.
        weight: for how many combinations of all fates each combination of these files' fates stands.
    """

    situation: Situation
    chosen: tuple[int, ...]
    files: tuple[int, ...]
    weight: int

    @property
    def num_states(self) -> int:
        """How many combinations of the seen files' fates there are."""
        return math.prod(len(self.situation.units[i].fates) for i in self.files)

    def assignments(self) -> Iterator[tuple[int, ...]]:
        """The fates of all units for each of these combinations."""
        units, chosen = self.situation.units, list(self.chosen)
        for fates in itertools.product(*(range(len(units[i].fates)) for i in self.files)):
            for i, fate in zip(self.files, fates, strict=True):
                chosen[i] = fate
            yield tuple(chosen)


def frames_of(situation: Situation, most: int) -> list[Frame] | None:
    """All frames of a situation; None if more than ``most`` combinations would have to be looked at for them."""
    units = situation.units
    files = [i for i, unit in enumerate(units) if unit.fates[0].file is not None]
    names = [i for i, unit in enumerate(units) if unit.fates[0].file is None]
    if math.prod(len(units[i].fates) for i in names) > most:
        return None
    found: dict[object, Frame] = {}
    for fates in itertools.product(*(range(len(units[i].fates)) for i in names)):
        chosen = [unit.kept for unit in units]
        for i, fate in zip(names, fates, strict=True):
            chosen[i] = fate
        seen = situation.names(chosen)
        are_seen = [(file := units[i].fates[0].file) is not None and file[0] in seen.objects for i in files]
        weight = math.prod(len(units[i].fates) for i, is_seen in zip(files, are_seen, strict=True) if not is_seen)
        # On ext4 the fates of names say which fates of files go with them, so that equal names are not the same.
        same = (fates if situation.model == "ext4-ordered" else (), seen)
        if same in found:
            found[same].weight += weight
        else:
            loose = tuple(i for i, is_seen in zip(files, are_seen, strict=True) if is_seen)
            found[same] = Frame(situation, tuple(chosen), loose, weight)
    return list(found.values())
