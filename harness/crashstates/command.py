"""``python -m harness crashstates FILE.py``: is a save safe against every crash, and if not, what is missing?"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.crashstates.archive import read_archive, write_archives
from harness.crashstates.calibration import verdict_of
from harness.crashstates.examine import Examination, examine
from harness.crashstates.explore import DEFAULT_MOST
from harness.crashstates.models import MODEL_NAMES
from harness.crashstates.progress import progress
from harness.crashstates.ranks.session import Host, Session
from harness.crashstates.read.reading import Reader
from harness.crashstates.scratch import scratch
from harness.crashstates.sweep import sweep
from harness.crashstates.trouble import TROUBLES
from harness.crashstates.verdict import SAFE
from harness.crashstates.wording import report, to_json
from harness.scenario import SaverScenario

EXIT_CODES = {"valid": 0, "broken": 1, "unknown": 2}
_IN_MEMORY = Path("/dev/shm")  # saving and loading thousands of times is faster there, and wears no disk


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file",
        type=Path,
        metavar="FILE.py",
        help="has save(directory, step), which returns once the save is acknowledged, and load(directory), which "
        "returns whatever it loaded (None: nothing there); with ranks = N in it both run on N ranks",
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--model",
        action="append",
        choices=MODEL_NAMES,
        metavar="NAME",
        help=f"a kind of crash, may be given again: {', '.join(MODEL_NAMES)} (default: all)",
    )
    parser.add_argument(
        "--most",
        type=_count,
        default=DEFAULT_MOST,
        metavar="N",
        help="states to try a model; where there are more, a choice is made and said (default: %(default)s)",
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of that choice (default: %(default)s)")
    what.add_argument(
        "--trouble",
        nargs="*",
        choices=TROUBLES,
        metavar="NAME",
        help=f"no crashes, but trouble while a save runs, wherever it can come: {', '.join(TROUBLES)} (default: all)",
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument(
        "--keep",
        type=Path,
        metavar="DIR",
        help="keep an archive of a state for each way to fail, and of one for each way to be safe",
    )
    parser.add_argument("--replay", type=Path, metavar="ARCHIVE", help="load this kept state again, and nothing else")
    parser.add_argument(
        "--directory",
        type=Path,
        metavar="DIR",
        help="where to save and load; a file system of another kind may be written in another way (default: in memory)",
    )


def run(options: argparse.Namespace) -> int:
    """Run it; returns the exit code: 0 valid, 1 broken, 2 unknown, and as a shell does where a signal ended it.

    Raises:
        HarnessError: the file, the archive or this machine cannot be used.
    """
    with work_directory(options.directory) as root:
        if options.replay is not None:
            return _replay(options.file, options.replay, root)
        if options.trouble is not None:
            found = Examination(file=options.file)
            with progress("tries") as shown:
                found.take(sweep(options.file, root, options.trouble or tuple(TROUBLES), on_attempt=shown.count))
        else:
            models = options.model or MODEL_NAMES
            with progress("states") as shown:
                found = examine(
                    options.file, root, models=models, most=options.most, seed=options.seed, on_state=shown.count
                )
    archives = write_archives(found, options.keep, with_safe=True) if options.keep is not None else []
    if options.json:
        print(json.dumps(to_json(found) | {"archives": [str(path) for path in archives]}, indent=1))
    else:
        print(report(found))
        for path in archives:
            kept = read_archive(path)
            steps = f"step {kept.acked or 'none'} acknowledged, step {kept.begun or 'none'} begun"
            print(f"  kept {path} ({steps}); again: python -m harness crashstates {options.file} --replay {path}")
    return EXIT_CODES[found.outcome]


def examine_scenario(scenario: SaverScenario, *, disarm: bool = False) -> Examination:
    """What is found of the scenario's save function; with ``disarm`` no crash and no trouble is tried.

    Raises:
        HarnessError: the file or this machine cannot be used.
    """
    with Host() as host:
        with work_directory() as root:
            found = examine(
                scenario.saver_file,
                root,
                models=() if disarm else scenario.models,
                most=scenario.most_states,
                seed=scenario.seed,
                host=host,
            )
        if scenario.troubles and not disarm:
            with work_directory() as root:
                found.take(sweep(scenario.saver_file, root, scenario.troubles, host=host))
        return found


def _replay(file: Path, path: Path, root: Path) -> int:
    kept = read_archive(path)
    if Path(kept.file).name != file.name:
        print(f"note: {path} was left by saves of {kept.file}")
    with Session(file) as session, Reader(session, root) as reader:
        now, reason = verdict_of(reader.outcome(kept.visible), kept.truth, kept.acked, kept.begun)
    print("\n".join(kept.lines))
    print(f"now: {now}: the reader {reason}")
    return 0 if now in SAFE else 1


@contextmanager
def work_directory(place: Path | None = None) -> Iterator[Path]:
    """A new, empty checkpoint directory in a directory of its own; in memory if ``place`` is None and there is room."""
    if place is None and os.access(_IN_MEMORY, os.W_OK):
        place = _IN_MEMORY
    with scratch(place) as directory:
        root = directory / "checkpoints"
        root.mkdir()
        yield root


def _count(text: str) -> int:
    if (value := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"{value} is less than 1")
    return value
