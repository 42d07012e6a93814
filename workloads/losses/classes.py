"""What the classifiers minimize (ddp_mlp, ddp_digits, mixed_precision, batch_norm): each sample's cross entropy."""

from torch import Tensor, nn
from torch.nn.functional import cross_entropy


def losses(model: nn.Module, batch: list[Tensor]) -> dict[str, tuple[Tensor, int]]:
    """The loss summed over the samples, and their number."""
    x, y_B = batch
    return {"class": (cross_entropy(model(x), y_B, reduction="sum"), len(y_B))}
