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
from harness.crashstates.tree import Visible


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

    def states(self) -> Iterator[tuple[tuple[int, ...], Visible]]:
        """The fates and the tree of each."""
        tree = self.situation.tree(self.chosen)
        names = tree.names()
        units = self.situation.units
        whole = {path: tree.nodes[object_] for path, object_ in names}
        paths: dict[int, list[str]] = {}
        for path, object_ in names:
            paths.setdefault(object_, []).append(path)
        for fates in itertools.product(*(range(len(units[i].fates)) for i in self.files)):
            chosen, visible = list(self.chosen), dict(whole)
            for i, fate in zip(self.files, fates, strict=True):
                chosen[i] = fate
                if (file := units[i].fates[fate].file) is not None:
                    visible |= dict.fromkeys(paths[file[0]], file[1])
            yield tuple(chosen), visible


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
        seen = situation.tree(chosen).names()
        objects = {object_ for _, object_ in seen}
        are_seen = [(file := units[i].fates[0].file) is not None and file[0] in objects for i in files]
        weight = math.prod(len(units[i].fates) for i, is_seen in zip(files, are_seen, strict=True) if not is_seen)
        # On ext4 the fates of names say which fates of files go with them, so that equal names are not the same.
        same = (fates if situation.model == "ext4-ordered" else (), tuple(seen))
        if same in found:
            found[same].weight += weight
        else:
            loose = tuple(i for i, is_seen in zip(files, are_seen, strict=True) if is_seen)
            found[same] = Frame(situation, tuple(chosen), loose, weight)
    return list(found.values())
