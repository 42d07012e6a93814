"""Invert one bit of one element of a tensor."""

from __future__ import annotations

import torch

_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # by size in bytes


def flip(label: str, tensor: torch.Tensor, index: int, bit: int) -> dict[str, object]:
    """Invert bit ``bit``, from the lowest, of element ``index`` of the flattened tensor, in place.

    Args:
        label: what to call the tensor.

    Returns:
        What was measured: ``tensor`` (the label), ``elements`` (how many have other bytes now: 0 or 1) and ``values``
        (in words); or ``problem``, if there is no such bit.
    """
    bits = 8 * tensor.element_size()
    if bit >= bits or index >= tensor.numel():
        has = f"{tensor.numel()} elements of {bits} bits"
        return {"problem": f"there is no bit {bit} of element {index} in {label}: it has {has}"}
    place = tuple(torch.unravel_index(torch.tensor(index), tensor.shape)) if tensor.dim() else ()
    before = tensor[place].reshape(1).clone()
    flipped = before.clone()
    flipped.view(_INTEGERS[tensor.element_size()]).bitwise_xor_((1 << bit) if bit < bits - 1 else -(1 << bit))
    tensor[place] = flipped[0]
    after = tensor[place].reshape(1)
    is_another = not torch.equal(after.view(torch.uint8), before.view(torch.uint8))
    values = f"{before.item()!r} became {after.item()!r}"  # words, for JSON knows no NaN
    return {"tensor": label, "elements": int(is_another), "values": values}
