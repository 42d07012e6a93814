"""What a failed fsync leaves behind: later ones that succeed and keep nothing."""

from __future__ import annotations

import dataclasses

from harness.crashstates.operation import CHANGES_DATA, Kind, Recording


def without_vain_syncs(recording: Recording, path: str, failed_s: float) -> Recording:
    """The recording as if syncs of a file did nothing after one had failed, until the file is written again.

    Linux marks pages clean that it could not write, so that the next fsync has nothing to do, and succeeds
    (Rebello et al., "Can Applications Recover from fsync Failures?", USENIX ATC 2020).

    Args:
        path: of what could not be synced, relative to the checkpoint directory.
        failed_s: when, in seconds since the epoch.
    """
    of_path = [op.object for op in recording.operations if op.path == path and op.t_s <= failed_s]
    is_vain = True
    operations = []
    for op in recording.operations:
        is_after = bool(of_path) and op.t_s > failed_s and op.object == of_path[-1]
        if is_after and op.kind in CHANGES_DATA:
            is_vain = False
        vain = is_after and is_vain and op.kind is Kind.SYNC
        operations.append(dataclasses.replace(op, object=-1) if vain else op)
    return dataclasses.replace(recording, operations=tuple(operations))
