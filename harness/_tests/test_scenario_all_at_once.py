"""All mistakes of a scenario file are told at once: none hides another one, and none is told that hangs on another."""

from __future__ import annotations

import pytest

from harness._tests.scenario_files import Write, refusal

GOOD = """\
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


def test_all_problems_of_a_file_come_at_once_in_the_order_of_its_lines(write: Write) -> None:
    problems = refusal(
        write(
            """\
title = 3
workload = "ddp_mpl"
colour = 2
max_restarts = "1"
collective_timeout_s = 70

[[fault]]
kind = "kil"
rank = 7
at = { step = 99, phase = "bakward", foo = 1 }

[[fault]]
kind = "torn"
rank = [0, "x"]
at.failpoint = "ckpt.shard.fsync"
at.step = 12

[expect]
outcome = "recover"
resume_step = 11
broken = [{ guarantee = "RollbackExakt", rank = 9 }]
"""
        )
    )
    places = [": ".join(problem.split(": ")[:2]) for problem in problems]
    assert places == [
        "s.toml:1: title",
        "s.toml:2: workload",
        "s.toml:3: colour",
        "s.toml:4: max_restarts",
        "s.toml:5: collective_timeout_s",
        "s.toml:8: fault[0].kind",
        "s.toml:9: fault[0].rank",
        "s.toml:10: fault[0].at.phase",
        "s.toml:10: fault[0].at.foo",
        "s.toml:10: fault[0].at.step",
        "s.toml:14: fault[1].rank",
        "s.toml:15: fault[1].at.failpoint",
        "s.toml:19: expect.outcome",
        "s.toml:20: expect.resume_step",
        "s.toml:21: expect.broken[0].guarantee",
        "s.toml:21: expect.broken[0].rank",
    ]


RECOVERS = "[expect]\noutcome = 'recovers'\n"
SEVERAL = {
    "a field of the wrong type leaves the place of its fault to be judged": (
        'kind = "damage_file"\nfile = 3\nrank = 1\nat = { step = 0, collective = 3, hit = 0 }',
        ["fault[0].file", "fault[0].at.step", "fault[0].at.hit", "fault[0].at.collective"],
    ),
    "a missing field leaves the rest of its fault to be judged": (
        'kind = "resize_collective"\nrank = 7\nat = { step = 21, epoch = 0 }',
        ["fault[0].numel", "fault[0].rank", "fault[0].at.step", "fault[0].at.epoch"],
    ),
    "a missing choice leaves the rest of its fault to be judged": (
        'kind = "retype_collective"\nrank = 7\nat = { step = 21 }',
        ["fault[0].dtype", "fault[0].rank", "fault[0].at.step"],
    ),
    "a kind that is like none leaves rank and place to be judged, and what hangs on the kind unsaid": (
        'kind = "explode"\nforce = 3\nrank = 7\nat = { step = 21, epoch = 0, hit = 0 }',
        ["fault[0].kind", "fault[0].rank", "fault[0].at.step", "fault[0].at.hit"],
    ),
    "a missing kind leaves rank and place to be judged": (
        'rank = 7\nat = { step = 21 }',
        ["fault[0]", "fault[0].rank", "fault[0].at.step"],
    ),
    "an unknown phase leaves it seen that the fault ends its rank": (
        'kind = "kill"\nrank = 1\nat = { step = 3, phase = "bakward" }\n[expect]\noutcome = "recovers"\n',
        ["max_restarts", "fault[0].at.phase"],
    ),
    "of two faults that end ranks the later one says how many restarts there must be": (
        'kind = "kill"\nrank = 1\nat.step = 3\n[[fault]]\nkind = "exit"\nrank=1\nat={step=5, restart=1}\n' + RECOVERS,
        ["max_restarts", "fault[1].at.restart"],
    ),
    "a table of its own without its first field leaves the others to be judged": (
        'kind = "kill"\nrank = 7\nat.step = 21\n[gradient]\n',
        ["fault[0].rank", "fault[0].at.step", "gradient.losses"],
    ),
    "a guarantee that is none leaves where it is to be broken": (
        'kind = "kill"\nrank = 1\nat.step = 3\n[expect]\noutcome = "detected"\nbroken = [{ rank = 9 }]\n',
        ["expect.broken[0].guarantee", "expect.broken[0].rank"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("fault", "fields"), SEVERAL.values(), ids=SEVERAL)
def test_a_mistake_does_not_hide_the_others(write: Write, fault: str, fields: list[str]) -> None:
    expect = "" if "[expect]" in fault else '[expect]\noutcome = "stops"\n'
    problems = refusal(write(f'workload = "ddp_mlp"\nmax_restarts = 0\n[[fault]]\n{fault}\n{expect}'))
    assert {problem.split(": ")[1].removesuffix(".kind") for problem in problems} == {
        field.removesuffix(".kind") for field in fields
    }


def test_one_bracket_too_few_does_not_hide_what_is_wrong_inside(write: Write) -> None:
    problems = refusal(
        write(GOOD.replace("[[fault]]", "[fault]").replace("rank = 1\n", "rank = 7\n").replace("12", "21"))
    )
    assert [": ".join(problem.split(": ")[:2]) for problem in problems] == [
        "s.toml:4: fault",
        "s.toml:6: fault[0].rank",
        "s.toml:7: fault[0].at.step",
    ]


def test_a_start_that_is_not_there_does_not_hide_that_nobody_is_held_to_it(write: Write) -> None:
    problems = refusal(write('workload = "ddp_mlp"\nstart_from = "gone"\n[expect]\noutcome = "recovers"\n'))
    assert [problem.split(": ")[1] for problem in problems] == ["start_from", "expect.resume_step"]


DISTURBED = {
    "the number of steps is wrong, so no step is beyond them": ('steps = "x"', "step = 99"),
    "the number of ranks is wrong, so no rank is outside": ("ranks = 2.5", "step = 12"),
    "the seed is wrong, and nothing hangs on it": ("seed = -1", "step = 12"),
}


@pytest.mark.parametrize(("head", "at"), DISTURBED.values(), ids=DISTURBED)
def test_nothing_is_reported_that_may_vanish_when_another_field_is_mended(write: Write, head: str, at: str) -> None:
    text = f'workload = "ddp_mlp"\n{head}\n[[fault]]\nkind = "kill"\nrank = 5\nat = {{ {at} }}\n'
    if "ranks" not in head:
        text = text.replace("rank = 5", "rank = 1")
    problems = refusal(write(text + '[expect]\noutcome = "stops"\n'))
    assert [problem.split(": ")[0] for problem in problems] == ["s.toml:2"]


MISSPELLED = {
    "a place, whose fault then seems to have none": ("at = { step", "at = { step_at", ["7: fault[0].at.step_at"]),
    "a bound, without which the job seems not to recover": (
        "max_restarts = 1",
        "max_restart = 1",
        ["2: max_restart"],
    ),
    "the kind of a fault": ('kind = "kill"', 'kin = "kill"', ["5: fault[0].kin"]),
    "where a fault is": ("at = {", "att = {", ["7: fault[0].att"]),
    "a table that must be there": ("[expect]", "[expects]", ["9: expects"]),
    "the workload": ("workload", "workloads", ["1: workloads"]),
    "a table, in which another mistake is told with its line": (
        '[[fault]]\nkind = "kill"\nrank = 1',
        '[[faults]]\nkind = "kill"\nrank = 7',
        ["4: faults", "6: fault[0].rank"],
    ),
    "one of two, and the value is wrong as well": ("at = { step = 12", 'at = { stp = "x"', ["7: fault[0].at.stp"]),
    "like a field that is there besides": ("step = 12", "step = 12, stp = 3", ["7: fault[0].at.stp"]),
    "like no field, so that nothing stands for what is missing": (
        "workload",
        "script",
        ["1: workload", "1: script"],
    ),
}


@pytest.mark.parametrize(("right", "wrong", "places"), MISSPELLED.values(), ids=MISSPELLED)
def test_a_misspelled_name_is_told_and_not_what_follows_from_it(
    write: Write, right: str, wrong: str, places: list[str]
) -> None:
    assert right in GOOD
    problems = refusal(write(GOOD.replace(right, wrong, 1)))
    assert [": ".join(problem.split(": ")[:2]) for problem in problems] == [f"s.toml:{place}" for place in places]
