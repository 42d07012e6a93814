"""safetensors.torch.save_file under the same name each time; the library writes a temporary file and renames it."""

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file


def save(directory: str, step: int) -> None:
    tensors = {"weights": torch.full((64, 64), float(step)), "bias": torch.full((64,), step / 10)}
    save_file(tensors, Path(directory, "model.safetensors"))


def load(directory: str) -> Any:
    path = Path(directory, "model.safetensors")
    return load_file(path) if path.exists() else None
