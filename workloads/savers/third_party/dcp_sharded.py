"""torch.distributed.checkpoint of a tensor that two ranks hold in halves, as FSDP2 does; a fresh directory a step."""

from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

ranks = 2


def state(value: float) -> dict[str, Any]:
    mesh = init_device_mesh("cpu", (ranks,))
    return {"step": int(value), "weights": DTensor.from_local(torch.full((32, 64), value), mesh, [Shard(0)])}


def save(directory: str, step: int) -> None:
    dcp.save(state(float(step)), checkpoint_id=Path(directory, f"step-{step}"))


def load(directory: str) -> Any:
    found = [path.parent for path in Path(directory).glob("step-*/.metadata")]
    if not found:
        return None
    loaded = state(0.0)
    dcp.load(loaded, checkpoint_id=max(found, key=lambda path: int(path.name.removeprefix("step-"))))
    return {"step": loaded["step"], "weights": loaded["weights"].to_local()}
