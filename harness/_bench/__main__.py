"""Print the table of budgets, or of the parts that are named. Exit code 1 if one is not kept.

    python -m harness._bench [PART ...]      such as recording

A loaded machine is a reason to run it again.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

PARTS = (
    *("collecting", "digests", "saving", "choosing", "recording", "gradients", "memory", "recovery"),
    *("page", "judging", "chaos", "crash_states", "rival", "third_party"),
)


def main(names: Sequence[str]) -> int:
    if unknown := [name for name in names if name not in PARTS]:
        print(f"there is no part {unknown[0]!r}; allowed: {', '.join(PARTS)}", file=sys.stderr)
        return 2
    print(f"{'':<5} {'what':<58} {'measured':>8} of {'budget':<8} from")
    all_within = True
    for name in names or PARTS:
        for row in importlib.import_module(f"harness._bench.{name}").measure():
            print(row, flush=True)
            all_within &= row.is_within
    return 0 if all_within else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
