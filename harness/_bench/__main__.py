"""Print the table of budgets. Exit code 1 if one is not kept; a loaded machine is a reason to run it again."""

from __future__ import annotations

import sys

from harness._bench import (
    choosing,
    collecting,
    crash_states,
    digests,
    memory,
    recording,
    recovery,
    rival,
    saving,
    third_party,
)


def main() -> int:
    print(f"{'':<5} {'what':<58} {'measured':>8} of {'budget':<8} from")
    all_within = True
    for bench in (
        *(collecting, digests, saving, choosing, recording, memory, recovery),
        *(crash_states, rival, third_party),
    ):
        for row in bench.measure():
            print(row, flush=True)
            all_within &= row.is_within
    return 0 if all_within else 1


if __name__ == "__main__":
    sys.exit(main())
