"""Hugging Face Trainer on the smallest GPT-2: trained by one step and saved, resumed from ``get_last_checkpoint``."""

from typing import Any

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

steps = (1, 2)

TOKENS = [{"input_ids": torch.arange(8), "labels": torch.arange(8)}] * 2


class Restored(TrainerCallback):
    """What the Trainer goes on with, taken before its next step; its weights, optimizer, step and random numbers."""

    state: Any = None

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.state = {
            "step": state.global_step,
            "model": {name: tensor.clone() for name, tensor in kwargs["model"].state_dict().items()},
            "optimizer": {
                f"{number} {name}": value.clone()
                for number, of_parameter in kwargs["optimizer"].state_dict()["state"].items()
                for name, value in of_parameter.items()
            },
            "random": torch.get_rng_state(),
        }
        control.should_training_stop = True


def trainer(directory: str, max_steps: int, **more: Any) -> Trainer:
    torch.manual_seed(0)
    sizes = GPT2Config(n_layer=1, n_head=1, n_embd=8, n_positions=8, vocab_size=8, bos_token_id=0, eos_token_id=0)
    arguments = TrainingArguments(
        output_dir=directory,
        max_steps=max_steps,
        per_device_train_batch_size=1,
        lr_scheduler_type="constant",
        save_strategy="steps",
        save_steps=1,
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
    )
    return Trainer(GPT2LMHeadModel(sizes), arguments, train_dataset=TOKENS, **more)


def save(directory: str, step: int) -> None:
    trainer(directory, max_steps=step).train(resume_from_checkpoint=get_last_checkpoint(directory))


def load(directory: str) -> Any:
    last = get_last_checkpoint(directory)
    if last is None:
        return None
    restored = Restored()
    more = trainer(directory, max_steps=1_000, callbacks=[restored])
    more.args.save_strategy = "no"
    more.train(resume_from_checkpoint=last)
    return restored.state
