"""The [gradient] table of a scenario: what the losses are, and which updates are looked at."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import ScenarioError
from harness.plan import load_plan, make_plan, write_plan
from harness.scenario import Gradient, load_scenario

TEXT = """\
workload = "lm_tokens"
{more}[gradient]
{gradient}
[expect]
outcome = "clean"
"""
GOOD = 'losses = "losses.py"\nupdates = [1, 9]\ntolerance = 2e-2\nclip_norm = 1.0'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "losses.py").touch()
    return tmp_path


def write(folder: Path, gradient: str, more: str = "") -> Path:
    path = folder / "s.toml"
    path.write_text(TEXT.format(gradient=gradient, more=more))
    return path


@pytest.mark.parametrize("gradient", [GOOD, 'losses = "losses.py"'], ids=["all of it", "the losses alone"])
def test_the_losses_are_found_from_the_scenarios_folder_and_stand_in_the_plan(folder: Path, gradient: str) -> None:
    plan = make_plan(load_scenario(write(folder, gradient)), device="cpu")
    losses = str((folder / "losses.py").resolve())
    expected = Gradient(losses=losses, updates=(1, 9), tolerance=2e-2, clip_norm=1.0)
    assert plan.gradient == (expected if gradient == GOOD else Gradient(losses=losses))
    write_plan(plan, folder)
    assert load_plan(folder).gradient == plan.gradient


PROBLEMS = {
    "no file": (GOOD.replace("losses.py", "loss.py"), "", "s.toml:3: gradient.losses: ", "there is no file"),
    "no losses": ("updates = [1]", "", "s.toml:2: gradient.losses: ", "missing"),
    "no update": (GOOD.replace("[1, 9]", "[]"), "", "s.toml:4: gradient.updates: ", "at least 1"),
    "update 0": (GOOD.replace("[1, 9]", "[0]"), "", "s.toml:4: gradient.updates[0]: ", "greater than or equal to 1"),
    "a misspelt field": (GOOD.replace("clip_norm", "clip"), "", "s.toml:6: gradient.clip: ", "clip_norm"),
    "a tolerance of 1": (GOOD.replace("2e-2", "1.0"), "", "s.toml:5: gradient.tolerance: ", "less than 1"),
    "nobody to judge it": (
        GOOD,
        'guarantees = ["SamplesOnce"]\n',
        "s.toml:2: guarantees: ",
        "leaves out GradientRight",
    ),
}


@pytest.mark.parametrize(("gradient", "more", "place", "words"), PROBLEMS.values(), ids=PROBLEMS)
def test_what_cannot_work_is_refused_with_its_place(
    folder: Path, gradient: str, more: str, place: str, words: str
) -> None:
    with pytest.raises(ScenarioError) as caught:
        load_scenario(write(folder, gradient, more))
    assert place in str(caught.value)
    assert words in str(caught.value)


def test_a_guarantee_that_is_asked_for_wants_its_table(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    asked = 'guarantees = ["GradientRight", "EffectsOnce"]'
    path.write_text(f'workload = "ddp_mlp"\n{asked}\n[expect]\noutcome = "clean"\n')
    with pytest.raises(ScenarioError) as caught:
        load_scenario(path)
    for table, guarantee in (("gradient", "GradientRight"), ("effect", "EffectsOnce")):
        assert f"{table}: missing: {guarantee} is asked for" in str(caught.value)
