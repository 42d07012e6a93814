"""Faults in a scenario file: what a kind cannot do is refused, what is unusual but right is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness._tests.scenario_files import Write, refusal
from harness.scenario import load_scenario

KIND_PROBLEMS = {
    "a torn write of what is no write": (
        'kind = "torn"\nat.failpoint = "ckpt.shard.fsync"', "cannot be torn: it is no write"),
    "a torn write with a moment": (
        'kind = "torn"\nat.failpoint = "ckpt.shard.write:torn"', "give 'ckpt.shard.write' alone"),
    "a torn write that is whole": (
        'kind = "torn"\nfraction = 1.0\nat.failpoint = "ckpt.shard.write"', "fraction: 1.0: must be at least 0 and"),
    "a torn write in a phase": ('kind = "torn"\nat.phase = "save"', "torn does not understand it"),
    "an exit code of nine bits": ('kind = "exit"\ncode = 256\nat.step = 3', "code: 256: must be 0..255"),
    "an exit of another kind": ('kind = "exit"\nhow = "exit"\nat.step = 3', "allowed: os._exit, sys.exit"),
    "an empty message": ('kind = "raise"\nmessage = " "\nat.step = 3', "message: \" \": must not be empty"),
    "no batch left out": ('kind = "short_loader"\nbatches = 0\nat.epoch = 0', "batches: 0: must be at least 1"),
    "an epoch before the first": ('kind = "short_loader"\nat.epoch = -1', "at.epoch: -1: must be at least 0"),
    "a loader at a step": ('kind = "short_loader"\nat.step = 3', "short_loader does not understand it; allowed: epoch"),
    "a resize without a size": ('kind = "resize_collective"\nat.step = 3', "numel: missing: number of elements"),
    "an extra one of no size": ('kind = "extra_collective"\nnumel = 0\nat.step = 3', "numel: 0: must be at least 1"),
    "a collective before the first": ('kind = "skip_collective"\nat.collective = 0', "collective: 0: must be at"),
    "an unknown signal": ('kind = "kill"\nsignal = "SIGKIL"\nat.step = 3', "did you mean 'SIGKILL'?"),
    "a field of another kind": ('kind = "kill"\ncode = 3\nat.step = 3', "code: 3: unknown field; allowed: kind, rank"),
    "a negative restart": ('kind = "kill"\nat = { step = 3, restart = -1 }', "at.restart: -1: must be at least 0"),
    "a sample before the first": (
        'kind = "corrupt_sample"\nsample = -1\nat.step = 3', "sample: -1: must be at least 0"),
    "a sample that is not changed": ('kind = "corrupt_sample"\nfactor = 0.0\nat.step = 3', "a finite number other"),
    "a batch at a collective": ('kind = "nan_batch"\nat.collective = 3', "does not understand it; allowed: epoch or"),
    "a stall of no time": ('kind = "stalled_read"\nduration_s = 0.0\nat.step = 3', "seconds above 0, and finite"),
    "a stall without end": ('kind = "stalled_read"\nduration_s = inf\nat.step = 3', "seconds above 0, and finite"),
    "a stall that outlasts the run": (
        'kind = "stalled_read"\nduration_s = 60.0\nat.step = 3', "must be below deadline_s, which is 60"),
    "a stall of unknown length": ('kind = "stalled_read"\nat.step = 3', "duration_s: missing: how long the read"),
    "the usual learning rate": ('kind = "scale_lr"\nfactor = 1.0\nat.step = 3', "factor: 1.0: must not be 1"),
    "a negative learning rate": ('kind = "scale_lr"\nfactor = -1.0\nat.step = 3', "finite number, at least 0"),
    "a learning rate that is no number": ('kind = "scale_lr"\nfactor = nan\nat.step = 3', "finite number, at least 0"),
    "a bit that no element has": ('kind = "flip_bit"\nbit = 64\nat.step = 3', "bit: 64: must be 0..63"),
    "a bit before the first": ('kind = "flip_bit"\nbit = -1\nat.step = 3', "bit: -1: must be 0..63"),
    "an element before the first": ('kind = "flip_bit"\nindex = -1\nat.step = 3', "index: -1: must be at least 0"),
    "a tensor without a name": ('kind = "flip_bit"\nname = ""\nat.step = 3', "leave it out for the first tensor"),
    "a bit of another part": ('kind = "flip_bit"\npart = "buffer"\nat.step = 3', "allowed: parameter, optimizer"),
    "a buffer that stays": ('kind = "drift_buffer"\namount = 0.0\nat.step = 3', "amount: 0.0: must be a finite number"),
    "an overflow of no gradient": ('kind = "overflow"\ngradient = "all"\nat.step = 3', "allowed: reduced, local"),
    "an update in a phase": ('kind = "skip_update"\nat.phase = "forward"', "does not understand it; allowed: step"),
    "a save in another phase": ('kind = "skip_save"\nat.phase = "forward"', "skip_save acts in save alone"),
    "a save where there is none": ('kind = "skip_save"\nat.step = 3', "at.step: 3: nothing is saved there"),
    "a load in another phase": ('kind = "skip_load"\nat.phase = "init"', "skip_load acts in load alone"),
    "a grace period after SIGKILL": (
        'kind = "kill"\ngrace_s = 1.0\nat.step = 3', "SIGKILL asks for nothing; a grace period is for SIGTERM"),
    "a grace period of no time": (
        'kind = "kill"\nsignal = "SIGTERM"\ngrace_s = 0.0\nat.step = 3', "grace_s: 0.0: must be a number of seconds"),
    "a hang of another kind": ('kind = "hang"\nhow = "asleep"\nat.step = 3', "allowed: stopped, loop, lock"),
    "a straggler of no time": ('kind = "straggle"\nduration_s = 0.0\nat.step = 3', "seconds above 0, and finite"),
    "a straggler in no update": (
        'kind = "straggle"\nduration_s = 0.1\nupdates = 0\nat.step = 3', "updates: 0: must be at least 1"),
    "a straggler after the end": (
        'kind = "straggle"\nduration_s = 0.1\nupdates = 9\nat.step = 13',
        "updates: 9: update 21 never comes; steps = 20 allows 1..8"),
    "a straggler that outlasts the run": (
        'kind = "straggle"\nduration_s = 60.0\nat.step = 3', "must be below deadline_s, which is 60"),
    "too little memory for last words": (
        'kind = "out_of_memory"\nheadroom_bytes = 1\nat.step = 3', "headroom_bytes: 1: must be at least 33554432"),
    "a delay without end": ('kind = "delay_collective"\nduration_s = inf\nat.step = 3', "seconds above 0, and finite"),
    "a dtype that nothing has": ('kind = "retype_collective"\ndtype = "float8"\nat.step = 3', "allowed: float16, bfl"),
    "a reduction that nothing does": ('kind = "change_reduction"\nreduce_op = "XOR"\nat.step = 3', "allowed: SUM, AVG"),
    "a bit that no value on its way has": (
        'kind = "corrupt_collective"\nbit = 64\nat.step = 3', "bit: 64: must be 0..63"),
    "an element on its way before the first": (
        'kind = "corrupt_collective"\nindex = -1\nat.step = 3', "index: -1: must be at least 0"),
    "a file outside of the checkpoint": (
        'kind = "damage_file"\nfile = "../x"\nat.step = 8', "must be the name of a file"),
    "a damage of another kind": (
        'kind = "damage_file"\nfile = "x.pt"\nhow = "rust"\nat.step = 8', "allowed: bit, page, empty, missing, stale"),
    "a checkpoint before the first": (
        'kind = "damage_file"\nfile = "x.pt"\ncheckpoint = -1\nat.step = 8', "checkpoint: -1: must be at least 0"),
    "a file at a collective": (
        'kind = "damage_file"\nfile = "x.pt"\nat.collective = 3', "does not understand it; allowed: failpoint or"),
    "a file that no checkpoint of ours has": (
        'kind = "damage_file"\nfile = "complete"\nat.step = 8', "no checkpoint has it; allowed: COMPLETE, MANIFEST"),
    "the part of a rank that there is not": (
        'kind = "damage_file"\nfile = "rank-2.pt"\nat.step = 8', "ranks = 2 allows rank-0.pt to rank-1.pt"),
    "a checkpoint where nothing is saved": (
        'kind = "damage_file"\nfile = "x.pt"\ncheckpoint = 7\nat.step = 8',
        "checkpoint: 7: nothing is saved there; allowed: each multiple of save_every = 5"),
    "a checkpoint that is saved later": (
        'kind = "damage_file"\nfile = "x.pt"\ncheckpoint = 15\nat.step = 12',
        "checkpoint: 15: is not saved yet at step 12; there are then: 5, 10"),
    "a checkpoint that is saved after this update": (
        'kind = "damage_file"\nfile = "x.pt"\ncheckpoint = 10\nat = { step = 10, phase = "forward" }',
        "checkpoint: 10: is not saved yet at step 10; there are then: 5"),
    "a damage before the first save": (
        'kind = "damage_file"\nfile = "x.pt"\nat.step = 3', "at.step: 3: there is no checkpoint yet; allowed: each"),
    "a link before the first save": ('kind = "move_latest"\nat.step = 3', "at.step: 3: there is no checkpoint yet"),
    "the file of a checkpoint that was never before": (
        'kind = "damage_file"\nfile = "x.pt"\nhow = "stale"\nat.step = 8',
        'how: "stale": there is no checkpoint before it at step 8; there are then: 5'),
    "a link to somewhere else": ('kind = "move_latest"\nto = "nowhere"\nat.step = 8', "allowed: missing, dangling, be"),
    "a hit before the first": ('kind = "kill"\nat = { step = 3, hit = 0 }', "at.hit: 0: must be at least 1"),
}  # fmt: skip


@pytest.mark.parametrize(("fault", "said"), KIND_PROBLEMS.values(), ids=KIND_PROBLEMS)
def test_what_a_kind_cannot_do_is_refused(write: Write, fault: str, said: str) -> None:
    text = f'workload = "ddp_mlp"\n[[fault]]\nrank = 0\n{fault}\n[expect]\noutcome = "stops"\n'
    problems = refusal(write(text))
    assert said in problems[0]
    assert len(problems) == 1


RIGHT = {
    "a torn write of rank 0": ("", 'kind = "torn"\nrank = 0\nat = { step = 5, failpoint = "ckpt.complete.write" }'),
    "the save after the last update": (
        "steps = 7", 'kind = "kill"\nrank = 0\nat = { step = 7, failpoint = "ckpt.publish.rename:after" }'),
    "a second fault in recovery": (
        "max_restarts = 2",
        'kind = "kill"\nrank = 1\nat.step = 3\n[[fault]]\nkind = "kill"\nrank = 1\nat={phase="load", restart=1}'),
    "two ranks end together": (
        "max_restarts = 1",
        'kind = "kill"\nrank = 0\nat.step = 12\n[[fault]]\nkind = "exit"\nrank = 1\nat.step = 12'),
    "torch.save of any script": ("", 'kind = "torn"\nrank = "last"\nat = { failpoint = "torch.save" }'),
    "a straggler up to the last update": (
        "", 'kind = "straggle"\nrank = 1\nduration_s = 0.1\nupdates = 8\nat.step = 13'),
    "damage while the checkpoint of this update may be there": (
        "", 'kind = "damage_file"\nfile = "rank-1.pt"\nrank = 0\ncheckpoint = 10\nat = { step = 10, phase = "eval" }'),
    "damage to what the first launch had saved later": (
        "max_restarts = 1",
        'kind = "damage_file"\nfile = "x.pt"\nrank = 0\ncheckpoint = 15\nat = { step = 12, restart = 1 }'),
    "damage to what a crash left": (
        'start_from = "."', 'kind = "damage_file"\nfile = "COMPLETE"\nrank = 0\ncheckpoint = 3\nat.step = 4'),
    "a stale file of the second checkpoint": (
        "", 'kind = "damage_file"\nfile = "COMPLETE"\nhow = "stale"\nrank = 0\ncheckpoint = 10\nat.step = 12'),
    "a shorter loader on every rank but 0": ("", 'kind = "short_loader"\nrank = "nonzero"\nat = { epoch = 1 }'),
}  # fmt: skip


@pytest.mark.parametrize(("head", "fault"), RIGHT.values(), ids=RIGHT)
def test_what_is_unusual_but_right_is_not_refused(write: Write, head: str, fault: str) -> None:
    load_scenario(write(f'workload = "ddp_mlp"\n{head}\n[[fault]]\n{fault}\n[expect]\noutcome = "stops"\n'))


def test_the_files_and_steps_of_a_script_of_the_users_are_its_own(write: Write, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    fault = 'kind = "damage_file"\nrank = 0\nfile = "weights.bin"\ncheckpoint = 7\nat.step = 8\n'
    load_scenario(write(f'workload = "train.py"\n[[fault]]\n{fault}[expect]\noutcome = "stops"\n'))
