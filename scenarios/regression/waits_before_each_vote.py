"""ddp_mlp whose ranks wait for each other before each vote of a save: a collective that carries no value."""

import torch.distributed as dist

from harness.checkpoint.exchange import ProcessGroupExchange
from workloads.planted import run

vote = ProcessGroupExchange.gather


def wait_and_vote(self: ProcessGroupExchange, message: bytes) -> list[bytes]:
    dist.barrier()
    return vote(self, message)


ProcessGroupExchange.gather = wait_and_vote  # type: ignore[method-assign]
run()
