"""The plugin from outside: which files are collected, how results read, what options and bounds do."""

from __future__ import annotations

import json
import shutil
import textwrap
from pathlib import Path

import pytest

from harness._tests.repository import CONFTEST, Repository
from harness.plugin.collect import is_scenario


@pytest.fixture
def repository(pytester: pytest.Pytester) -> Repository:
    pytester.makeconftest(textwrap.dedent(CONFTEST))
    return Repository(pytester)


# ------------------------------------------------------------------------------------------------------- collection


def test_a_scenario_becomes_one_test_for_each_device(repository: Repository) -> None:
    repository.scenario("kill", devices='"cpu", "gpu"')
    result = repository.run("--collect-only", "-q")
    result.stdout.fnmatch_lines(["scenarios/kill.toml::cpu", "scenarios/kill.toml::gpu", "2 tests collected*"])
    assert not (repository.path / ".chaos").exists()


@pytest.mark.parametrize(
    ("expression", "expected"),
    [pytest.param("gpu", "gpu", id="the GPU items"), pytest.param("not gpu", "cpu", id="all others")],
)
def test_the_marker_gpu_selects(expression: str, expected: str, repository: Repository) -> None:
    repository.scenario("kill", devices='"cpu", "gpu"')
    result = repository.run("--collect-only", "-q", "-m", expression)
    result.stdout.fnmatch_lines([f"scenarios/kill.toml::{expected}", "1/2 tests collected*"])


def test_one_item_is_run_by_its_id_from_any_directory(
    repository: Repository, tmp_path_factory: pytest.TempPathFactory
) -> None:
    repository.scenario("kill", devices='"cpu", "gpu"')
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    shutil.copy(repository.path / "scenarios" / "kill.toml", elsewhere)
    result = repository.run("--collect-only", "-q", f"{elsewhere}/kill.toml::cpu")
    result.stdout.fnmatch_lines(["*kill.toml::cpu", "1 test collected*"])


@pytest.mark.parametrize(
    ("name", "text", "collected"),
    [
        pytest.param("a.toml", 'workload = "ddp_mlp"\n', True, id="a workload: yes"),
        pytest.param(
            "a.toml", 'title = "x"\n\n# note\r\nenv = {A = "b"}\n  workload="w"\n', True, id="further down: yes"
        ),
        pytest.param("a.toml", '[expect]\noutcome = "clean"\n', True, id="an expect table without a workload: yes"),
        pytest.param("a.toml", 'expect.outcome = "clean"\n', True, id="a dotted expect: yes"),
        pytest.param("a.toml", 'expect = { outcome = "clean" }\n', True, id="an inline expect: yes"),
        pytest.param("a.toml", '[tool]\nworkload = "x"\n', False, id="a workload inside a table of another tool: no"),
        pytest.param("a.toml", 'workloads = ["x"]\n[expected]\n', False, id="longer words: no"),
        pytest.param("a.toml", "", False, id="an empty file: no"),
        pytest.param("pyproject.toml", 'workload = "ddp_mlp"\n', False, id="pyproject.toml: never"),
        pytest.param("Cargo.toml", 'workload = "ddp_mlp"\n', False, id="Cargo.toml: never"),
        pytest.param(".hidden.toml", 'workload = "ddp_mlp"\n', False, id="a dot-file: no"),
    ],
)
def test_which_files_are_scenarios(name: str, text: str, collected: bool, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(text)
    assert is_scenario(path) is collected


def test_only_scenarios_of_a_directory_are_collected(repository: Repository) -> None:
    repository.scenario("deep/er/kill")
    repository.write("scenarios/deep/other.toml", "[tool]\nworkload = 'x'\n")
    repository.write("scenarios/deep/pyproject.toml", "workload = 'x'\n")
    repository.write("scenarios/deep/text.txt", "workload = 'x'\n")
    repository.run("--collect-only", "-q").stdout.fnmatch_lines(
        ["scenarios/deep/er/kill.toml::cpu", "1 test collected*"]
    )


def test_a_file_named_on_the_command_line_is_a_scenario_whatever_is_in_it(repository: Repository) -> None:
    repository.write("mine.toml", "ranks = 2\n")
    result = repository.run("mine.toml")
    result.stdout.fnmatch_lines(["*mine.toml*workload*"])
    assert result.ret == pytest.ExitCode.INTERRUPTED


def test_a_bad_file_lists_all_its_problems_and_no_traceback(repository: Repository) -> None:
    repository.write("scenarios/bad.toml", 'workload = "ddp_mpl"\nrnaks = 2\n[expect]\noutcome = "clen"\n')
    result = repository.run()
    result.stdout.fnmatch_lines(["*bad.toml:1:*ddp_mlp*", "*bad.toml:2:*rnaks*ranks*", "*bad.toml:4:*clen*clean*"])
    result.stdout.no_fnmatch_line("*Traceback*")
    result.stdout.no_fnmatch_line("*.py:*")
    result.assert_outcomes(errors=1)


CURE = "*no test is run while a file is refused: mend it, or give --continue-on-collection-errors as well"


def test_a_bad_file_says_how_to_run_the_others_all_the_same(repository: Repository) -> None:
    repository.scenario("good", "holds")
    repository.write("scenarios/bad.toml", 'workload = "ddp_mpl"\n[expect]\noutcome = "clean"\n')
    result = repository.run()
    result.stdout.fnmatch_lines(["*bad.toml:1:*ddp_mlp*", CURE])
    result.assert_outcomes(errors=1)
    result = repository.run("--continue-on-collection-errors")
    result.stdout.no_fnmatch_line(CURE)
    result.assert_outcomes(errors=1, passed=1)


# --------------------------------------------------------------------------------------------------------- outcomes


def test_one_line_a_scenario_with_outcome_and_time(repository: Repository) -> None:
    repository.scenario("a", "holds", devices='"cpu", "gpu"')
    repository.scenario("b", "is broken")
    repository.scenario("c", "is unknown")
    repository.scenario("d", "makes trouble")
    result = repository.run()
    result.assert_outcomes(passed=1, failed=2, errors=1, skipped=1)
    result.stdout.re_match_lines(
        [
            r"scenarios/a.toml cpu passed 0.6 s  gpu skipped +\[ *\d+%\]",
            r"scenarios/b.toml cpu failed 0.6 s ",
            r"scenarios/c.toml cpu unknown 0.6 s ",
            r"scenarios/d.toml cpu error ",
        ]
    )


def test_a_pass_whose_end_was_compared_with_nothing_is_told(repository: Repository) -> None:
    repository.scenario("a", "holds")
    repository.scenario("b", "compared with nothing, and holds")
    result = repository.run()
    result.assert_outcomes(passed=2)
    said = "chaos: scenarios/b.toml::cpu passed, but its end was compared with nothing: two runs without faults differ"
    assert [line for line in result.outlines if "compared with" in line] == [said]


def test_the_same_with_one_line_an_item(repository: Repository) -> None:
    repository.scenario("a", "holds")
    repository.scenario("c", "is unknown")
    result = repository.run("-v")
    result.stdout.fnmatch_lines(["scenarios/a.toml::cpu PASSED 0.6 s *", "scenarios/c.toml::cpu UNKNOWN 0.6 s *"])
    result.stdout.fnmatch_lines(["UNKNOWN scenarios/c.toml::cpu - *UNKNOWN: ReplicasAgree*"])  # the summary


def test_a_failure_is_all_that_a_person_needs_and_nothing_of_python(repository: Repository) -> None:
    repository.scenario("kill in backward", "replicas are broken", more="seed = 3")
    result = repository.run()
    result.stdout.fnmatch_lines(
        [
            "ReplicasAgree is invalid: after update 12 the parameters of rank 1 differ from those of rank 0",
            "*title *replicas are broken",
            "*promise *byte-equal on all ranks",
            "*where *rank 1, step 12",
            "*seen *rank 0 = 9f3c",
            "*rank 1 = 77aa",
            "*open *.chaos/runs/*/rank-1/events-0.jsonl:42",
            "*replay *pytest 'scenarios/kill in backward.toml::cpu' --launcher warm --chaos-seed 3",
            "*recheck *python -m harness recheck .chaos/runs/*",
            "FAILED scenarios/kill in backward.toml::cpu - *ReplicasAgree is inv*",
        ]
    )
    result.stdout.no_fnmatch_line("*plugin*items.py*")
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_the_replay_command_of_a_failure_does_replay_it(repository: Repository) -> None:
    repository.scenario("kill", "is broken")
    first = repository.run("--chaos-seed", "7", "--launcher", "torchrun")
    command = next(line for line in first.outlines if line.lstrip().startswith("replay")).split()[1:]
    assert command == ["pytest", "scenarios/kill.toml::cpu", "--launcher", "torchrun", "--chaos-seed", "7"]
    repository.run_alone(*command[1:]).assert_outcomes(failed=1)
    one, two = (json.loads((run / "plan.json").read_text()) | {"made_with": None} for run in repository.runs)
    assert one == two


def test_what_is_unknown_fails_under_that_name(repository: Repository) -> None:
    repository.scenario("kill", "is unknown")
    result = repository.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["UNKNOWN: ReplicasAgree is unknown: *"])


def test_trouble_of_the_harness_is_an_error_and_not_a_failure(repository: Repository) -> None:
    repository.scenario("kill", "makes trouble")
    result = repository.run()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*ERROR at setup of kill*", "LaunchError: the warm parent did not answer within 10 s"])
    result.stdout.no_fnmatch_line("*exception*")


def test_missing_gpus_are_a_skip_that_says_why(repository: Repository) -> None:
    repository.scenario("kill", devices='"gpu"')
    result = repository.run("-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED*2 GPUs needed, 0 visible: 2 missing*"])


def test_missing_gpus_are_a_failure_where_they_are_required(repository: Repository) -> None:
    repository.scenario("kill", devices='"gpu"')
    result = repository.run("--require-gpus")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*2 GPUs needed, 0 visible: 2 missing*--require-gpus*"])


def test_disarmed_scenarios_never_pass(repository: Repository) -> None:
    repository.scenario("kill")
    result = repository.run("--disarm")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["chaos: *disarmed True*", "UNKNOWN: *", "*replay *--disarm"])


# --------------------------------------------------------------------------------------------------- options, bounds


def test_options_reach_the_plan_and_the_header_shows_them(repository: Repository) -> None:
    repository.scenario("kill")
    result = repository.run("--chaos-seed=7", "--launcher=torchrun", "--chaos-store=kept")
    result.stdout.fnmatch_lines(["chaos: seed 7, launcher torchrun, store kept, commit *"])
    (plan,) = repository.path.glob("kept/runs/*/*/plan.json")
    assert json.loads(plan.read_text())["seed"] == 7
    assert json.loads(plan.read_text())["launcher"] == "torchrun"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(["--chaos-seed=-1"], "*--chaos-seed=-1: must be 0 or more", id="a negative seed"),
        pytest.param(["--chaos-seed=x"], "*--chaos-seed: invalid int value*", id="a seed that is no number"),
        pytest.param(["--launcher=mpi"], "*--launcher: invalid choice: 'mpi'*", id="an unknown launcher"),
        pytest.param(["--recheck=gone"], "*--recheck=gone: no such directory*", id="a store that is not there"),
    ],
)
def test_bad_options_are_usage_errors(arguments: list[str], message: str, repository: Repository) -> None:
    result = repository.run(*arguments)
    result.stderr.fnmatch_lines([message])
    assert result.ret == pytest.ExitCode.USAGE_ERROR


def test_a_timeout_of_the_user_below_the_deadline_names_all_three_bounds(repository: Repository) -> None:
    repository.scenario("kill", more="collective_timeout_s = 4.0\ndeadline_s = 50.0")
    result = repository.run("--timeout=20")
    result.stdout.fnmatch_lines(["*collective_timeout_s = 4 < deadline_s = 50 < *--timeout=20 is less than 180*"])
    result.assert_outcomes(errors=1)


@pytest.mark.parametrize("setting", ["--timeout=180", "--timeout=0"])
def test_a_timeout_of_the_user_that_suffices_is_kept(setting: str, repository: Repository) -> None:
    repository.scenario("kill", more="deadline_s = 50.0")
    repository.run(setting).assert_outcomes(passed=1)


def test_an_ini_timeout_for_unit_tests_does_not_cut_scenarios(repository: Repository) -> None:
    repository.ini("timeout = 1")
    repository.scenario("kill", more="deadline_s = 50.0")
    repository.write(
        "conftest.py",
        textwrap.dedent(CONFTEST)
        + "\ndef pytest_timeout_set_timer(item, settings):\n    print('bound of', item.name, settings.timeout)\n",
    )
    repository.run("-s").stdout.fnmatch_lines(["*bound of cpu 180.0"])


def test_a_run_that_outlasts_every_bound_is_an_error_of_the_harness(repository: Repository) -> None:
    repository.scenario("kill", "is to hang", more="collective_timeout_s = 0.01\ndeadline_s = 0.02")
    repository.write(
        "conftest.py",
        textwrap.dedent(CONFTEST) + "\nimport harness.plugin.collect\nharness.plugin.collect.JUDGING_S = 0.2\n",
    )
    result = repository.run_alone()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*Timeout*0.26*"])


def test_without_pytest_timeout_scenarios_still_run(repository: Repository) -> None:
    repository.scenario("kill")
    repository.run("-p", "no:timeout", "--strict-markers").assert_outcomes(passed=1)


def test_the_markers_explain_themselves(repository: Repository) -> None:
    repository.run("--markers").stdout.fnmatch_lines(["@pytest.mark.gpu: *--require-gpus*", "@pytest.mark.chaos: *"])
