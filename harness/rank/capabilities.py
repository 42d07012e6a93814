"""What torch can do on this machine: runs in a child process of its own, prints one JSON object and ends.

    python -m harness.rank.capabilities

The controller never imports torch (``harness.probes`` runs this): importing it takes seconds, and a controller that
has touched CUDA could fork no rank that uses it.
"""

from __future__ import annotations

import json
import os
import sys

import torch
import torch.distributed as dist


def gloo_trouble() -> str:
    """Empty if a gloo group of one rank can be made and used, else why not.

    Being compiled in is not enough: gloo also fails on a host whose own name it cannot resolve.
    """
    if not (dist.is_available() and dist.is_gloo_available()):
        return "this build of torch has no gloo"
    try:
        store = dist.HashStore()  # type: ignore[attr-defined]  # public, but its stub does not say so
        dist.init_process_group("gloo", store=store, rank=0, world_size=1)
        dist.all_reduce(torch.ones(1))
    except (RuntimeError, ValueError) as error:
        return str(error).splitlines()[0]
    return ""


def main() -> None:
    has_cuda = torch.cuda.is_available()
    has_nccl = dist.is_available() and dist.is_nccl_available()
    facts = {
        "gloo_trouble": gloo_trouble(),
        "nccl": ".".join(map(str, torch.cuda.nccl.version())) if has_cuda and has_nccl else "",
        "cuda_build": torch.version.cuda or "",
        "gpus": [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())] if has_cuda else [],
    }
    print(json.dumps(facts), flush=True)
    sys.stderr.flush()
    os._exit(0)  # past gloo's threads, which may still run and can abort an interpreter that is being taken down


if __name__ == "__main__":
    main()
