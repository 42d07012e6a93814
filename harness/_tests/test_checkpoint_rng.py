"""Random states: taken, saved as plain data, and gone on from."""

from __future__ import annotations

import io
import random
from typing import Any

import numpy as np
import pytest
import torch

from harness.checkpoint.rng import cuda_devices_in_use, rng_state, seed_rng, set_rng_state


def through_a_file(value: Any) -> Any:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=True)


def draw(source: str) -> list[float]:
    match source:
        case "python":
            return [random.random(), random.gauss(0, 1)]  # gauss keeps the second of two numbers for the next call
        case "numpy":
            return [*np.random.rand(2), np.random.normal()]
        case _:
            return torch.rand(2).tolist() + torch.randn(3).tolist()


@pytest.mark.parametrize("source", ["python", "numpy", "torch"])
def test_numbers_go_on_where_the_state_was_taken(source: str) -> None:
    draw(source)
    state = through_a_file(rng_state())
    expected = draw(source)
    assert draw(source) != expected
    set_rng_state(state)
    assert draw(source) == expected


@pytest.mark.parametrize("source", ["python", "numpy", "torch"])
def test_a_seed_decides_what_is_drawn(source: str) -> None:
    seed_rng(2**40 + 1)
    expected = draw(source)
    seed_rng(7)
    assert draw(source) != expected
    seed_rng(2**40 + 1)
    assert draw(source) == expected


def test_a_taken_state_does_not_follow_the_live_one() -> None:
    state = rng_state()
    before = state["torch"].clone()
    torch.rand(1000)
    assert torch.equal(state["torch"], before)


def test_a_state_of_more_devices_than_there_are_is_refused() -> None:
    state = rng_state() | {"cuda": {97: torch.zeros(16, dtype=torch.uint8), 98: torch.zeros(16, dtype=torch.uint8)}}
    with pytest.raises(ValueError, match=r"CUDA devices 97, 98,"):
        set_rng_state(state)


def test_no_device_is_touched_if_cuda_was_not_started() -> None:
    if torch.cuda.is_initialized():
        pytest.skip("CUDA was started by another test of this process")
    assert cuda_devices_in_use() == []
    assert "cuda" not in rng_state()
    assert not torch.cuda.is_initialized()


@pytest.mark.gpu
def test_the_device_goes_on_where_its_state_was_taken() -> None:
    if not torch.cuda.is_available():
        pytest.skip("needs 1 GPU, this machine has 0")
    torch.rand(3, device="cuda")
    state = through_a_file(rng_state())
    assert list(state["cuda"]) == [torch.cuda.current_device()]
    expected = torch.rand(3, device="cuda")
    assert not torch.equal(torch.rand(3, device="cuda"), expected)
    set_rng_state(state)
    assert torch.equal(torch.rand(3, device="cuda"), expected)
