"""The checkpoints that a run leaves behind, looked at once it has ended, and kept in its run directory as data.

The store takes its inventories itself: of a save after which the job ended at once nobody has taken one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path, PurePath

from harness.checkpoint.judge import Entry, inspect, newest_valid
from harness.errors import RecordError
from harness.wire import REMAINS_JSON, Event, Kind

Remains = Mapping[str, Sequence[Entry]]  # of each directory


def root_of(save: Event) -> str:
    """The directory of all checkpoints, of an event that names one of them."""
    return str(PurePath(save.data["path"]).parent)


def unseen_roots(events: Iterable[Event]) -> set[str]:
    """Directories in which a save was reported done, and no inventory was taken since the first one.

    Since the last one there is none in most jobs: another rank may be told that it is done after rank 0 has looked, and
    to read everything again would take as long as the saves.
    """
    saved: set[str] = set()
    seen: set[str] = set()
    for event in events:
        if event.kind == Kind.SAVE_END and "path" in event.data:
            saved.add(root_of(event))
        elif event.kind == Kind.INVENTORY and (root := event.data.get("root")) in saved:
            seen.add(root)
    return saved - seen


def look(roots: Iterable[str], run_dir: Path) -> Remains:
    """What is in these directories, written down in ``run_dir`` as well: a complete checkpoint, or else all entries.

    Nothing of one that cannot be read, or is not there: it was a temporary one, say, which the script has removed.
    """
    found: dict[str, list[Entry]] = {}
    for root in filter(os.path.isdir, sorted(roots)):
        with suppress(OSError):
            complete = newest_valid(root)  # of older ones, which may be many and large, no data is read
            found[root] = inspect(root) if complete is None else [complete]
    kept = {root: [asdict(entry) for entry in entries] for root, entries in found.items()}
    (run_dir / REMAINS_JSON).write_text(json.dumps(kept, indent=1) + "\n")
    return found


def load_remains(run_dir: Path) -> Remains:
    """What was kept in ``run_dir``; nothing if nothing was.

    Raises:
        RecordError: the file is damaged.
    """
    path = run_dir / REMAINS_JSON
    if not path.exists():
        return {}
    try:
        kept = json.loads(path.read_text())
        return {root: [Entry(**entry) for entry in entries] for root, entries in kept.items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise RecordError(f"{path}: no readable list of checkpoints ({error}); run the scenario again") from error
