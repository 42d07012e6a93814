"""The command line beside pytest: ``python -m harness COMMAND``; ``--help`` lists the commands.

Exit codes: 0 all is well, 1 broken (a guarantee, or a machine that cannot run the main job), 2 unknown or wrong usage.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from harness.chaos.command import add_arguments as add_chaos_arguments
from harness.chaos.command import run as run_chaos
from harness.crashstates.command import add_arguments as add_crashstates_arguments
from harness.crashstates.command import run as run_crashstates
from harness.errors import HarnessError, RecordError

if TYPE_CHECKING:
    from harness.mutants import Row

OK, BROKEN, UNKNOWN = 0, 1, 2
_EXIT_CODES = {"passed": OK, "failed": BROKEN, "unknown": UNKNOWN}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    options = _parser().parse_args(arguments)
    try:
        with _ended_by_sigterm():
            code: int = options.command(options)
    except HarnessError as error:
        print(f"python -m harness {options.name}: {error}", file=sys.stderr)
        return UNKNOWN
    except BrokenPipeError:  # whoever read the output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except KeyboardInterrupt:
        print(f"python -m harness {options.name}: interrupted", file=sys.stderr)
        return 128 + signal.SIGINT
    return code


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """SIGTERM ends the command as an exception does, so that nothing of it is left behind."""

    def leave(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m harness", description="Scenarios are run by pytest: pytest scenarios"
    )
    commands = parser.add_subparsers(dest="name", required=True, metavar="COMMAND")

    doctor = commands.add_parser("doctor", help="say what this machine can do, what is missing, and the cure")
    doctor.set_defaults(command=_doctor)

    new = commands.add_parser("new", help="write a scenario to start from")
    new.add_argument("scenario", metavar="NAME", help="a name, or the path of a .toml file that is not there yet")
    new.set_defaults(command=_new)

    recheck = commands.add_parser("recheck", help="judge a stored run again, from its files alone")
    recheck.add_argument(
        "run_dir", metavar="RUN_DIR", type=Path, help="a directory that holds plan.json and outcome.json"
    )
    recheck.set_defaults(command=_recheck)

    report = commands.add_parser("report", help="write the page of a stored run (report.html, trace.json) or session")
    report.add_argument(
        "directory", metavar="RUN_OR_SESSION_DIR", type=Path, help="a run directory, or one of a session"
    )
    report.add_argument(
        "--failure-every", metavar="HOURS", type=float, default=24.0, help="mean time between failures of the real job"
    )
    report.set_defaults(command=_report)

    crashstates = commands.add_parser(
        "crashstates", help="load every state that a crash can leave of a save, and judge"
    )
    add_crashstates_arguments(crashstates)
    crashstates.set_defaults(command=run_crashstates)

    schema = commands.add_parser("schema", help="print the JSON Schema of scenario files, for editors")
    schema.set_defaults(command=_schema)

    mutants = commands.add_parser("mutants", help="run every planted bug and print which check caught it")
    mutants.add_argument(
        "of",
        nargs="?",
        choices=["bugs", "savers", "chaos"],
        help="of scripts, or of savers (default: both); chaos: of scripts, under drawn faults in place of chosen ones",
    )
    mutants.add_argument("--jobs", type=int, metavar="N", help="how many scripts at a time (default: one a core)")
    mutants.set_defaults(command=_mutants)

    chaos = commands.add_parser("chaos", help="run plans drawn from a seed, and write down the smallest that fails")
    add_chaos_arguments(chaos)
    chaos.set_defaults(command=run_chaos)
    return parser


def _doctor(_: argparse.Namespace) -> int:
    from harness.doctor import diagnosis, missing_for_main_job
    from harness.probes import capabilities

    found = capabilities()
    print(diagnosis(found))
    return BROKEN if missing_for_main_job(found) else OK


def _new(options: argparse.Namespace) -> int:
    from harness.new import write_new

    path = write_new(options.scenario)
    print(f"wrote {path}; run it: pytest {path}")
    return OK


def _recheck(options: argparse.Namespace) -> int:
    from harness.report.stored import load_verdicts
    from harness.report.terminal import judgement_text, verdict_table
    from harness.run import recheck

    judgement = recheck(options.run_dir)
    print(verdict_table(judgement))
    print(f"\n{judgement_text(judgement, options.run_dir)}")
    try:
        before = load_verdicts(options.run_dir).outcome
    except RecordError:  # a run that was broken off before it was judged
        before = "never judged"
    if before != judgement.outcome:
        print(f"  before   {before} (verdicts.json, left as it is)")
    return _EXIT_CODES[judgement.outcome]


def _report(options: argparse.Namespace) -> int:
    from harness.report.page import write_report_page

    print(write_report_page(options.directory, mtbf_s=options.failure_every * 3600))
    return OK


def _schema(_: argparse.Namespace) -> int:
    from harness.scenario.schema import schema_text

    sys.stdout.write(schema_text())
    return OK


def _mutants(options: argparse.Namespace) -> int:
    from harness.chaos.planted import try_planted
    from harness.mutants import line, planted_files, summary, thin, try_all, try_savers

    def show(row: Row) -> None:
        print(line(row), flush=True)

    rows: list[Row] = []
    if options.of == "chaos":
        rows += try_planted(planted_files(), show, options.jobs)
    if options.of in (None, "bugs"):
        rows += try_all(planted_files(), show, options.jobs)
    if options.of in (None, "savers"):
        rows += try_savers(show)
    too_few = thin(rows) if options.of != "savers" else []
    print("\n".join(summary(rows, too_few)))
    return OK if all(row.passed for row in rows) and not too_few else BROKEN


if __name__ == "__main__":
    sys.exit(main())
