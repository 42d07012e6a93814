"""Lightning's ModelCheckpoint with save_last: trained by one step and saved, found again by ``ckpt_path="last"``."""

from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(64, 64)

    def training_step(self, batch: Any, _: int) -> Any:
        return self.layer(batch[0]).square().mean()

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.parameters())

    def train_dataloader(self) -> Any:
        return DataLoader(TensorDataset(torch.ones(4, 64)), batch_size=4)


def trainer(directory: str, max_steps: int) -> Any:
    return Trainer(
        accelerator="cpu",
        max_steps=max_steps,
        callbacks=[ModelCheckpoint(dirpath=directory, save_last=True, every_n_train_steps=1)],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )


def save(directory: str, step: int) -> None:
    trainer(directory, max_steps=step).fit(Net(), ckpt_path="last")


def load(directory: str) -> Any:
    model, resumed = Net(), trainer(directory, max_steps=0)  # trains no step, so what it restored can be seen
    resumed.fit(model, ckpt_path="last")
    if resumed.global_step == 0:  # it warned that there is no last checkpoint, and would begin anew
        return None
    optimizer = resumed.optimizers[0].state_dict()["state"]
    return {"step": resumed.global_step, "model": dict(model.state_dict()), "optimizer": optimizer}
