"""The on-disk format of a checkpoint directory, in one place.

    step-N/             the checkpoint after update N: 0700, its files 0600
        NAME.pt         a part that all ranks share, written by rank 0
        rank-R.pt       what belongs to rank R alone
        MANIFEST.json   step, attempt, parent, world size, config; name, size and sha256 of each data file
        COMPLETE        written last: the sha256 of all the above; ``sha256sum -c COMPLETE`` checks it by hand
    latest              a link to the newest acknowledged one: a hint for people, read by nobody
    .step-N.tmp-A       what attempt A is writing, or was when it died
    .corrupt-A-step-N   found invalid when attempt A loaded an older one; never deleted
    .abandoned-A-step-N newer than what attempt A rolled back to; never deleted
    .trash-A-step-N     being deleted by retention
    .lock, ATTEMPT      the one live writer

An attempt is ``RESTART-RANDOM``: the restart count and 16 hexadecimal digits. Standard library only.
"""

from __future__ import annotations

from harness.checkpoint.judge import Entry as Entry
from harness.checkpoint.judge import Verdict as Verdict
from harness.checkpoint.judge import inspect as inspect
from harness.checkpoint.judge import newest_valid as newest_valid
from harness.checkpoint.layout import FileRecord as FileRecord
from harness.checkpoint.layout import Manifest as Manifest
from harness.checkpoint.layout import parse_manifest as parse_manifest
from harness.checkpoint.layout import step_name as step_name
from harness.checkpoint.layout import step_of as step_of
from harness.checkpoint.points import FAILPOINTS as FAILPOINTS
from harness.checkpoint.points import Failpoint as Failpoint
