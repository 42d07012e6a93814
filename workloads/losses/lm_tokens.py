"""What lm_tokens minimizes: two heads, each with targets of its own."""

from typing import Any

from torch import Tensor, nn

NO_TARGET = -100
TOPIC_WEIGHT = 0.5


def losses(model: nn.Module, batch: Any) -> dict[str, tuple[Tensor, Tensor, float]]:
    """Each head's loss summed over its targets, their number, and its weight."""
    next_token, topic = model(batch)
    return {
        "next token": (next_token, (batch.target_BT != NO_TARGET).sum(), 1.0),
        "topic": (topic, (batch.topic_B != NO_TARGET).sum(), TOPIC_WEIGHT),
    }
