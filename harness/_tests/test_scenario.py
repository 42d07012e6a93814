"""Scenario files: what is right loads, what is wrong is refused with its line, and nothing is hidden by anything."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from harness._tests.scenario_files import Write, refusal
from harness.faults import At
from harness.faults.kill import Kill
from harness.scenario import Expect, load_scenario

GOOD = """\
title = "rank 1 is killed"
workload = "ddp_mlp"
max_restarts = 1

[[fault]]
kind = "kill"
rank = 1
at = { step = 12, phase = "backward" }

[expect]
outcome = "recovers"
resume_step = 10
"""


def test_a_good_file_gives_its_fields_and_the_defaults(write: Write) -> None:
    path = write(GOOD)
    scenario = load_scenario(path)
    assert scenario.faults == (Kill(rank=1, at=At(step=12, phase="backward")),)
    assert scenario.expect == Expect(outcome="recovers", resume_step=10)
    assert scenario.file == path.resolve()
    assert scenario.script.name == "ddp_mlp.py"
    assert scenario.script.is_file()
    assert (scenario.ranks, scenario.steps, scenario.save_every, scenario.max_restarts) == (2, 20, 5, 1)
    assert (scenario.devices, scenario.launcher) == (("cpu",), "warm")
    assert (scenario.collective_timeout_s, scenario.deadline_s) == (5.0, 60.0)
    assert (scenario.planned_steps, scenario.planned_save_every) == (20, 5)


ONE_PROBLEM = {
    "an unknown field names all fields and the nearest": (
        ("max_restarts = 1", "max_restart = 1\nmax_restarts = 1"),
        ["s.toml:3: max_restart: 1: unknown field; did you mean 'max_restarts'? allowed: title, workload, "],
    ),
    "an unknown kind names all kinds and the nearest": (
        ('"kill"', '"kil"'),
        ['s.toml:6: fault[0].kind: "kil": unknown kind of fault; did you mean \'kill\'? allowed: abort_group, '],
    ),
    "a field within a fault that is near one of its own": (
        ('step = 12, phase', 'steps = 12, phase'),
        [
            "s.toml:8: fault[0].at.steps: 12: unknown field; did you mean 'step'? allowed: step, phase, epoch, ",
            "; 'steps' is a field of the whole scenario: write it above the first [[fault]]",
        ],
    ),
    "a field of a fault that is near one of its own": (
        ("rank = 1", "rank = 1\nranks = 1"),
        ["s.toml:8: fault[0].ranks: 1: unknown field; did you mean 'rank'? allowed: kind, rank, ", "; 'ranks' is "],
    ),
    "a field within an expectation that is near one of its own": (
        ('outcome = "recovers"', 'outcome = "recovers"\nresume_steps = 5'),
        ["s.toml:12: expect.resume_steps: 5: unknown field; did you mean 'resume_step'? allowed: outcome, "],
    ),
    "a missing kind names all kinds": (
        ('kind = "kill"\n', ""),
        ["s.toml:5: fault[0].kind: missing; allowed: abort_group, change_reduction, "],
    ),
    "an unknown phase names all phases and the nearest": (
        ('"backward"', '"bakward"'),
        ['s.toml:8: fault[0].at.phase: "bakward": unknown value; did you mean \'backward\'? allowed: init, '],
    ),
    "a failpoint names the nearest": (
        ('step = 12, phase = "backward"', 'step = 10, failpoint = "ckpt.shard.fsinc:after"'),
        [
            's.toml:8: fault[0].at.failpoint: "ckpt.shard.fsinc:after": unknown failpoint; did you mean',
            "; did you mean 'ckpt.shard.fsync:after'? allowed: ckpt.",
        ],
    ),
    "a failpoint without its moment says which there are": (
        ('step = 12, phase = "backward"', 'step = 10, failpoint = "ckpt.shard.write"'),
        ["fault[0].at.failpoint", "needs its moment; allowed: ckpt.shard.write:before, ckpt.shard.write:after"],
    ),
    "a kill in the middle of a write is called torn": (
        ('step = 12, phase = "backward"', 'step = 10, failpoint = "ckpt.shard.write:torn"'),
        ["fault[0].at.failpoint", "to stop in its middle use kind = 'torn'"],
    ),
    "an unknown outcome names the nearest": (
        ('"recovers"', '"recover"'),
        ['s.toml:11: expect.outcome: "recover": unknown value; did you mean \'recovers\'? allowed: clean, '],
    ),
    "an unknown workload names the nearest": (
        ('"ddp_mlp"', '"ddp_mpl"'),
        [
            's.toml:2: workload: "ddp_mpl": unknown workload; did you mean \'ddp_mlp\'? allowed: batch_norm, ',
            "sqlite_metrics, one of the ",
            " in workloads/planted as planted/NAME, or a path that ends in .py",
        ],
    ),
    "an unknown planted workload names the nearest of those": (
        ('"ddp_mlp"', '"planted/starts_at_zero"'),
        ["unknown workload; did you mean 'planted/starts_from_zero'"],
    ),
    "a workload that is like none": (('"ddp_mlp"', '"resnet"'), ["unknown workload; allowed: batch_norm"]),
    "an unknown guarantee names the nearest": (
        ("max_restarts = 1", 'max_restarts = 1\nguarantees = [\n  "FaultFired",\n  "RollbackExakt",\n]'),
        ['s.toml:6: guarantees[1]: "RollbackExakt": unknown value; did you mean \'RollbackExact\'? allowed: '],
    ),
    "a missing expectation says what it is": (
        ('[expect]\noutcome = "recovers"\nresume_step = 10\n', ""),
        [
            's.toml:1: expect: missing: what must come of it; write [expect], and below it outcome = "...", one of: ',
            "clean, recovers, stops, ",
        ],
    ),
    "a script of the user's that is not there": (
        ('"ddp_mlp"', '"../train.py"'),
        ['s.toml:2: workload: "../train.py": there is no file /', "train.py; paths start at the scenario"],
    ),
    "a folder in place of a script": (('"ddp_mlp"', '"folder.py"'), ["s.toml:2: workload", "there is no file"]),
    "a number in quotes": (
        ("max_restarts = 1", 'max_restarts = 1\nsteps = "20"'),
        ['s.toml:4: steps: "20": must be a whole number'],
    ),
    "a boolean in place of a number": (("step = 12", "step = true"), ["at.step: true: must be a whole number"]),
    "a number in place of a string": (("workload", "args = [1]\nworkload"), ["s.toml:2: args[0]: 1: must be a string"]),
    "a date in place of a string": (('"rank 1 is killed"', "2026-01-01"), ["s.toml:1: title", "must be a string"]),
    "infinity is no bound": (
        ("max_restarts = 1", "max_restarts = 1\ndeadline_s = inf"),
        ["s.toml:4: deadline_s", "must be a finite number"],
    ),
    "no rank at all": (
        ("max_restarts = 1", "max_restarts = 1\nranks = 0"),
        ["s.toml:4: ranks: 0: must be greater than or equal to 1"],
    ),
    "no device at all": (("max_restarts = 1", "max_restarts = 1\ndevices = []"), ["s.toml:4: devices: []"]),
    "one bracket too few around fault": (
        ("[[fault]]", "[fault]"),
        ["s.toml:5: fault", "write [[fault]] with two brackets"],
    ),
    "a rank that is none": (
        ("rank = 1\n", 'rank = "first"\n'),
        ["s.toml:7: fault[0].rank: \"first\": must be a rank from 0, a list of ranks, 'all', 'nonzero' or 'last'"],
    ),
    "a rank outside the world": (
        ("rank = 1\n", "rank = 2\n"),
        ["s.toml:7: fault[0].rank: 2: there is no rank 2; ranks = 2 allows 0..1"],
    ),
    "a negative rank in a list": (
        ("rank = 1\n", "rank = [0, -1]\n"),
        ["s.toml:7: fault[0].rank: [0, -1]: there is no rank -1"],
    ),
    "a rank twice": (("rank = 1\n", "rank = [1, 1]\n"), ["s.toml:7: fault[0].rank: [1, 1]: names a rank twice"]),
    "no rank in the list": (("rank = 1\n", "rank = []\n"), ["s.toml:7: fault[0].rank: []: names no rank"]),
    "nonzero in a world of one": (
        ('\n\n[[fault]]\nkind = "kill"\nrank = 1\n', '\nranks = 1\n[[fault]]\nkind = "kill"\nrank = "nonzero"\n'),
        ['s.toml:7: fault[0].rank: "nonzero": names no rank of ranks = 1'],
    ),
    "a step beyond the end": (
        ("step = 12", "step = 21"),
        ["s.toml:8: fault[0].at.step: 21: is beyond the last update: steps = 20"],
    ),
    "a step before the first": (("step = 12", "step = 0"), ["s.toml:8: fault[0].at.step: 0: must be at least 1"]),
    "a fault without a place": (
        ('at = { step = 12, phase = "backward" }\n', ""),
        ["s.toml:5: fault[0].at: must name a place; kill understands collective or failpoint or phase or step"],
    ),
    "a place that the kind does not understand": (
        ('step = 12, phase = "backward"', "epoch = 1"),
        ["s.toml:8: fault[0].at.epoch: 1: kill does not understand it; allowed: collective or failpoint or phase or"],
    ),
    "a restart beyond the budget": (
        ("step = 12", "restart = 2, step = 12"),
        ["s.toml:8: fault[0].at.restart: 2: never comes; max_restarts = 1 allows 0..1", "max_restarts"],
    ),
    "a save failpoint where nothing is saved": (
        ('step = 12, phase = "backward"', 'step = 12, failpoint = "ckpt.shard.write:before"'),
        ["s.toml:8: fault[0].at.step: 12: nothing is saved there; allowed: each multiple of save_every = 5"],
    ),
    "the phase save where nothing is saved": (
        ('"backward"', '"save"'),
        ["s.toml:8: fault[0].at.step: 12: nothing is saved there"],
    ),
    "a step in a load": (
        ('"backward"', '"load"'),
        ["s.toml:8: fault[0].at.step: 12: a load comes before the first update"],
    ),
    "a failpoint that only rank 0 passes": (
        ('step = 12, phase = "backward"', 'step = 10, failpoint = "ckpt.manifest.rename:before"'),
        ["s.toml:7: fault[0].rank: 1: only rank 0 passes ckpt.manifest.rename; allowed: 0"],
    ),
    "a collective and a hit": (
        ('phase = "backward"', "collective = 2, hit = 2"),
        ["s.toml:8: fault[0].at.hit: 2: cannot stand beside collective"],
    ),
    "bounds in the wrong order": (
        ("max_restarts = 1", "max_restarts = 1\ncollective_timeout_s = 60.0"),
        ["s.toml:4: collective_timeout_s: 60.0: must be below deadline_s, which is 60"],
    ),
    "a device twice": (
        ("max_restarts = 1", 'max_restarts = 1\ndevices = ["cpu", "cpu"]'),
        ["s.toml:4: devices: [\"cpu\", \"cpu\"]: names 'cpu' 2 times"],
    ),
    "a variable that the launcher sets": (
        ("max_restarts = 1", 'max_restarts = 1\nenv.RANK = "0"'),
        ['s.toml:4: env.RANK: "0": is set by the launcher'],
    ),
    "a variable that cannot be": (
        ("max_restarts = 1", 'max_restarts = 1\nenv."A=B" = "0"'),
        ["s.toml:4: env.A=B", "is no environment variable"],
    ),
    "an argument that cannot be": (
        ("max_restarts = 1", 'max_restarts = 1\nargs = ["a", "b\\u0000c"]'),
        ["s.toml:4: args[1]", "is no argument of a command: no zero byte in it"],
    ),
    "clean with a fault": (
        ('outcome = "recovers"\nresume_step = 10', 'outcome = "clean"'),
        ["s.toml:11: expect.outcome: \"clean\": clean is a run without faults"],
    ),
    "recovery without a restart": (
        ("max_restarts = 1", "max_restarts = 0"),
        ["s.toml:3: max_restarts: 0: fault[0] ends a rank at restart 0 and the job must recover: at least 1 is needed",
         "resume_step: 10: nothing resumes with max_restarts = 0"],
    ),
    "a recovery from nothing": (
        ('[[fault]]\nkind = "kill"\nrank = 1\nat = { step = 12, phase = "backward" }\n', ""),
        ["expect.outcome: \"recovers\": recovers needs something to recover from; add a [[fault]] or start_from"],
    ),
    "a start that is not there": (
        ("max_restarts = 1", 'max_restarts = 1\nstart_from = "kept/1-lost-ack.tar"'),
        ['s.toml:4: start_from: "kept/1-lost-ack.tar": ', "is not there; paths start at the scenario file's folder"],
    ),
    "a start that is a device": (
        ("max_restarts = 1", 'max_restarts = 1\nstart_from = "/dev/null"'),
        ["s.toml:4: start_from: ", "/dev/null is neither a directory nor an archive"],
    ),
    "an acknowledged save of no start": (
        ("max_restarts = 1", "max_restarts = 1\nacknowledged = 5"),
        ["s.toml:4: acknowledged: 5: is said of what start_from names; give it, or leave this out"],
    ),
    "a start that nobody is held to": (
        (GOOD[GOOD.index("max_restarts") :], 'start_from = "."\n[expect]\noutcome = "recovers"\n'),
        ["s.toml:4: expect.resume_step: missing: with start_from, the step that the job must go on from"],
    ),
    "a start that the script is not told of": (
        ('"ddp_mlp"', f'"{__file__}"\nstart_from = "."'),
        ["s.toml:3: start_from: ", "is copied into {checkpoints}, which none of args names", "add it to args"],
    ),
    "an argument that is nearly one that is replaced": (
        ("max_restarts = 1", 'max_restarts = 1\nargs = ["--out", "{checkpoint}"]'),
        ["s.toml:4: args[1]: ", "{checkpoint} is not replaced; did you mean '{checkpoints}'? these are: "],
    ),
    "a field of the whole scenario in a fault": (
        ("rank = 1\n", "rank = 1\ntolerance = 0.1\n"),
        ["s.toml:8: fault[0].tolerance: 0.1: is a field of the whole scenario: write it above the first [[fault]]"],
    ),
    "an acknowledged save before the first": (
        ("max_restarts = 1", 'max_restarts = 1\nstart_from = "."\nacknowledged = -1'),
        ["s.toml:5: acknowledged: -1: must be greater than or equal to 0"],
    ),
    "a resume where nothing is saved": (
        ("resume_step = 10", "resume_step = 11"),
        ["s.toml:12: expect.resume_step: 11: nothing is saved there; allowed: each multiple of save_every = 5"],
    ),
    "a resume beyond the end": (
        ("resume_step = 10", "resume_step = 25"),
        ["s.toml:12: expect.resume_step: 25: nothing is saved there"],
    ),
    "more restarts than allowed": (
        ("resume_step = 10", "restarts = 2"),
        ["s.toml:12: expect.restarts: 2: cannot be; max_restarts = 1 allows 0..1"],
    ),
    "detected, but what": (
        ('"recovers"', '"detected"'),
        ["s.toml:10: expect.broken: detected needs at least one"],
    ),
    "broken and yet recovered": (
        ("resume_step = 10", 'broken = [{ guarantee = "ReplicasAgree" }]'),
        ["s.toml:12: expect.broken", "nothing may be broken when the outcome is recovers"],
    ),
    "broken on a rank outside the world": (
        ('"recovers"\nresume_step = 10', '"detected"\n[[expect.broken]]\nguarantee = "ReplicasAgree"\nrank = 2'),
        ["s.toml:14: expect.broken[0].rank: 2: ranks = 2 allows 0..1"],
    ),
    "broken at a step beyond the end": (
        ('"recovers"\nresume_step = 10', '"detected"\n[[expect.broken]]\nguarantee = "ReplicasAgree"\nstep = 21'),
        ["s.toml:14: expect.broken[0].step: 21: steps = 20 allows 0..20"],
    ),
    "a message where nothing is refused": (
        ("resume_step = 10", 'message = "no"'),
        ["s.toml:12: expect.message: \"no\": belongs to the outcome refuses, not to recovers"],
    ),
    "the same fault twice": (
        ("[expect]", '[[fault]]\nkind = "kill"\nrank = 1\nat = { step = 12, phase = "backward" }\n[expect]'),
        ["s.toml:10: fault[1]", "says the same as fault[0]"],
    ),
    "a rank that would end twice in one launch": (
        ("[expect]", '[[fault]]\nkind = "exit"\nrank = "all"\nat = { step = 14 }\n[expect]'),
        ["s.toml:13: fault[1].at.restart", "rank 1 ends by fault[0] or by this one, never by both"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("change", "said"), ONE_PROBLEM.values(), ids=ONE_PROBLEM)
def test_a_wrong_field_is_named_with_its_line_and_what_is_allowed(
    write: Write, tmp_path: Path, change: tuple[str, str], said: list[str]
) -> None:
    (tmp_path / "folder.py").mkdir()
    assert change[0] in GOOD
    problems = "\n".join(refusal(write(GOOD.replace(*change))))
    for words in said:
        assert words in problems


ALONE = [name for name in ONE_PROBLEM if name not in ("recovery without a restart", "a restart beyond the budget")]


@pytest.mark.parametrize("name", ALONE)
def test_one_wrong_field_gives_one_problem(write: Write, tmp_path: Path, name: str) -> None:
    (tmp_path / "folder.py").mkdir()
    (old, new), _ = ONE_PROBLEM[name]
    assert len(refusal(write(GOOD.replace(old, new)))) == 1


NOT_TOML = {
    "a value that is none": (b'workload = "x"\nranks = two\n', "s.toml:2: is not TOML: "),
    "a string without an end": (b'a = 1\nworkload = "x\n', "s.toml:2: is not TOML: "),
    "a key twice": (b"ranks = 1\nranks = 2\n", "s.toml:2: is not TOML: "),
    "an end too early": (b"a = 1\nranks = [1,\n", "s.toml:3: is not TOML: "),
    "bytes that are no text": (b"a = 1\nb = '\xff'\n", "s.toml:2: is not UTF-8 text"),
    "nothing at all": (b"", "s.toml:1: workload: missing"),
}


@pytest.mark.parametrize(("content", "said"), NOT_TOML.values(), ids=NOT_TOML)
def test_a_file_that_is_not_toml_is_refused_with_its_line(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "s.toml"
    path.write_bytes(content)
    assert refusal(path)[0].startswith(said)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    assert refusal(tmp_path / "gone.toml") == ["gone.toml: cannot be read: No such file or directory"]


def test_a_script_of_the_users_is_found_from_the_scenarios_folder_and_not_held_to_steps(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    (tmp_path / "scenarios").mkdir()
    path = tmp_path / "scenarios" / "s.toml"
    text = GOOD.replace('"ddp_mlp"', '"../train.py"').replace("step = 12", "step = 1750")
    path.write_text(text.replace("resume_step = 10", "resume_step = 1234"))
    scenario = load_scenario(path)
    assert scenario.script == (tmp_path / "train.py").resolve()
    assert (scenario.planned_steps, scenario.planned_save_every) == (None, None)

    path.write_text('args = ["--steps={steps}"]\n' + text)
    assert refusal(path) == ["s.toml:9: fault[0].at.step: 1750: is beyond the last update: steps = 20"]


def test_a_thousand_files_load_without_torch_or_a_workload_imported(tmp_path: Path) -> None:
    for n in range(1000):
        (tmp_path / f"{n}.toml").write_text(GOOD)
    program = (
        "import sys, pathlib\n"
        "from harness.plan import make_plan\n"
        "from harness.scenario import load_scenario\n"
        "for path in pathlib.Path(sys.argv[1]).iterdir(): make_plan(load_scenario(path), device='cpu')\n"
        "print([name for name in ('torch', 'workloads', 'harness.rank', 'pytest') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("[]\n", "")
