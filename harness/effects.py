"""The side effects of a job, read once it has ended, and kept in its run directory as data.

Nothing is changed where they are: a database is copied with its journal and read from the copy, so that what a killed
writer left half done is rolled back there alone, as the next one to open it would do.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from harness.errors import RecordError
from harness.scenario.effects import Effect
from harness.wire import EFFECTS_JSON, expanded

_JOURNALS = ("", "-journal", "-wal")
_MAX_BLOB_BYTES = 64  # longer ones are kept as their digests


@dataclass(frozen=True, kw_only=True)
class Found:
    """What stood in one place of side effects after a run.

    Attributes:
        rows: column -> value, in the order of the table or file.
        varying: columns that differ from run to run, and are left out of the rows for it.
        problem: why they could not be read, if so; no rows then.
    """

    rows: tuple[Mapping[str, Any], ...] = ()
    varying: tuple[str, ...] = ()
    problem: str = ""


def read_effects(effects: Sequence[Effect], run_dir: Path) -> tuple[Found, ...]:
    """What stands in each of the places after the run in ``run_dir``; what cannot be read says so."""
    return tuple(_read(effect, Path(expanded(effect.path, run_dir))) for effect in effects)


def write_effects(found: Sequence[Found], run_dir: Path) -> None:
    """Keep them in the run directory, so that the run can be judged again anywhere."""
    (run_dir / EFFECTS_JSON).write_text(json.dumps([asdict(one) for one in found], indent=1) + "\n")


def load_effects(run_dir: Path) -> tuple[Found, ...]:
    """What was kept in ``run_dir``; nothing if nothing was.

    Raises:
        RecordError: the file is damaged.
    """
    path = run_dir / EFFECTS_JSON
    if not path.exists():
        return ()
    try:
        return effects_from_json(json.loads(path.read_text()))
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise RecordError(f"{path}: no readable effects ({error}); run the scenario again") from error


def effects_from_json(raw: Sequence[Mapping[str, Any]]) -> tuple[Found, ...]:
    return tuple(
        Found(
            rows=tuple(dict(row) for row in one["rows"]),
            varying=tuple(map(str, one.get("varying", ()))),
            problem=str(one["problem"]),
        )
        for one in raw
    )


def key_of(row: Mapping[str, Any], effect: Effect) -> str:
    """The values of the key's columns, as JSON."""
    return json.dumps([row[column] for column in effect.key])


def in_common(effect: Effect, one: Found, other: Found) -> Found:
    """What two runs of the same job without faults wrote alike: columns that differ (the time, say) are left out."""
    if one.problem or other.problem:
        return Found(problem=one.problem or other.problem)
    ours, theirs = ({key_of(row, effect): row for row in found.rows} for found in (one, other))
    if (odd := sorted(ours.keys() ^ theirs.keys())) or _count(effect, one) != _count(effect, other):
        which = f"{', '.join(effect.key)} = {odd[0]} is in one of them" if odd else "some stand there more than once"
        return Found(problem=f"two runs without faults wrote other effects: {which}")
    differing = {c for key, row in ours.items() for c in {**row, **theirs[key]} if row.get(c) != theirs[key].get(c)}
    rows = tuple({column: value for column, value in row.items() if column not in differing} for row in one.rows)
    return Found(rows=rows, varying=tuple(sorted(differing)))


def _count(effect: Effect, found: Found) -> Counter[str]:
    return Counter(key_of(row, effect) for row in found.rows)


def _read(effect: Effect, path: Path) -> Found:
    if not path.is_file():
        return Found(problem="there is no such file")
    try:
        rows = _lines(path) if effect.table is None else _table(path, effect.table)
    except (sqlite3.Error, OSError, ValueError, RecursionError) as error:
        return Found(problem=f"it cannot be read: {error}")
    for number, row in enumerate(rows, start=1):
        if missing := [column for column in effect.key if column not in row]:
            return Found(problem=f"row {number} has no {missing[0]}; it has {', '.join(row) or 'nothing'}")
    return Found(rows=tuple(rows))


def _table(path: Path, table: str) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory(prefix="chaos-effects-") as scratch:
        for journal in _JOURNALS:
            if (file := path.with_name(path.name + journal)).is_file():
                shutil.copyfile(file, Path(scratch, file.name))
        database = sqlite3.connect(Path(scratch, path.name))
        try:
            database.text_factory = lambda text: text.decode(errors="backslashreplace")
            quoted = table.replace('"', '""')
            selected = database.execute(f'SELECT * FROM "{quoted}"')
            columns = [column[0] for column in selected.description]
            return [{c: _plain(v) for c, v in zip(columns, values, strict=True)} for values in selected]
        finally:
            database.close()


def _plain(value: Any) -> Any:
    if not isinstance(value, bytes):
        return value
    is_short = len(value) <= _MAX_BLOB_BYTES
    return f"x'{value.hex()}'" if is_short else f"{len(value)} bytes, sha256 {hashlib.sha256(value).hexdigest()}"


def _lines(path: Path) -> list[dict[str, Any]]:
    rows = []
    for number, line in enumerate(path.read_bytes().split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        if not isinstance(row, dict):
            raise ValueError(f"line {number} is no JSON object: {line[:60]!r}")
        rows.append(row)
    return rows
