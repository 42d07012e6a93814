"""The share of right predictions among all samples; a sample ends in features and label."""

import torch
from torch.utils.data import DataLoader


def metric(model, dataset):  # type: ignore[no-untyped-def]
    device = next(model.parameters()).device
    right = 0
    for *_, x_BF, y_B in DataLoader(dataset, batch_size=64):
        predicted_B = model(x_BF.to(device)).argmax(dim=1)
        right += int(torch.sum(predicted_B == y_B.to(device)))
    return right / len(dataset)
