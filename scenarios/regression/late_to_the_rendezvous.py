"""ddp_mlp as on two hosts, where in a restart rank 1 comes to the rendezvous only after rank 0 has been there.

An order that any restart may take. Here it always does, and rank 0 always has the higher address: of two gloo ranks
that one opens the connection. So what follows from the order always shows.
"""

import os
import select
import sys
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import torch.distributed.distributed_c10d as c10d

from workloads.planted import run

HEAD_START_S = 0.5  # of rank 0, unless it ends earlier; far below the rendezvous' own bound, collective_timeout_s
rank = int(os.environ["RANK"])


class GlooOnItsOwnHost(c10d.ProcessGroupGloo):
    """Gloo on the loopback address 127.0.0.2 for rank 0, 127.0.0.1 for rank 1."""

    def __init__(self, store: c10d.Store, rank: int, size: int, timeout: timedelta, **_: object) -> None:  # 2.14: more
        options = c10d.ProcessGroupGloo._Options()
        options._devices = [c10d.ProcessGroupGloo.create_device(hostname=f"127.0.0.{2 - rank}")]
        options._timeout = timeout
        super().__init__(store, rank, size, options)


c10d.ProcessGroupGloo = GlooOnItsOwnHost
if os.environ["TORCHELASTIC_RESTART_COUNT"] != "0":
    meeting = Path(sys.argv[sys.argv.index("--checkpoint-dir") + 1]).with_name("rank-0-has-started")
    with suppress(FileExistsError):
        os.mkfifo(meeting)
    if rank == 0:
        os.open(meeting, os.O_WRONLY)  # waits for rank 1 to open its end; closed when this process ends
    else:
        select.select([os.open(meeting, os.O_RDONLY)], [], [], HEAD_START_S)  # readable: rank 0 has ended

run()
