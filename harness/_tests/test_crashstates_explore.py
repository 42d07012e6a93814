"""Which states each model allows, on recordings small enough to list them by hand."""

from __future__ import annotations

import itertools

import pytest

from harness._tests.crash_recordings import Script
from harness.crashstates.cuts import Order, every_cut, interval_ends
from harness.crashstates.explore import Explorer
from harness.crashstates.models import MODEL_NAMES, ModelName
from harness.crashstates.operation import Recording
from harness.crashstates.tree import Directory, File, Link, Visible

OLD, NEW = b"old", b"new"


def shown(visible: Visible) -> str:
    """A state in a few characters: ``a=old b/ c->a``."""

    def one(path: str) -> str:
        match visible[path]:
            case File(data):
                return f"{path}={data.decode(errors='replace')}"
            case Link(text):
                return f"{path}->{text}"
            case Directory():
                return f"{path}/"

    return " ".join(map(one, visible))


def states(recording: Recording, *models: ModelName, most: int = 20_000) -> set[tuple[str, int]]:
    """(tree, newest acknowledged step) of each state."""
    return {(shown(s.visible), s.acked) for s in Explorer(recording, models or MODEL_NAMES, most).states()}


def trees(recording: Recording, *models: ModelName) -> set[str]:
    return {tree for tree, _ in states(recording, *models)}


def test_killed_processes_leave_a_prefix_of_what_they_asked_for() -> None:
    recording = Script().begin(1).create("a").write("a", NEW).rename("a", "b").ack(1).recording
    assert states(recording, "kill") == {("", 0), ("a=", 0), ("a=new", 0), ("b=new", 0), ("b=new", 1)}


def test_a_write_that_a_kill_interrupts_is_cut_at_a_page() -> None:
    recording = Script().create("a").write("a", b"x" * 9000).recording
    assert trees(recording, "kill") == {"", "a=", "a=" + "x" * 4096, "a=" + "x" * 8192, "a=" + "x" * 9000}


def test_a_power_cut_keeps_of_an_unsynced_file_its_name_its_bytes_both_or_neither() -> None:
    recording = Script().create("a", b"x").ack(1).recording
    assert states(recording, "posix-min") >= {("", 1), ("a=", 1), ("a=x", 1), ("", 0), ("a=x", 0), ("a=\0", 1)}


@pytest.mark.parametrize(
    ("model", "allowed"),
    [
        pytest.param("posix-min", {"", "a=x"}, id="posix: its name may be lost"),
        pytest.param("ext4-ordered", {"a=x"}, id="ext4: its name is durable with it"),
    ],
)
def test_an_fsynced_file_keeps_its_bytes(model: ModelName, allowed: set[str]) -> None:
    recording = Script().create("a", b"x").fsync("a").ack(1).recording
    assert {tree for tree, acked in states(recording, model) if acked} == allowed


def test_syncing_the_directory_keeps_the_name() -> None:
    recording = Script().create("a", b"x").fsync("a").fsync().ack(1).recording
    assert {tree for tree, acked in states(recording) if acked} == {"a=x"}


@pytest.mark.parametrize(
    ("model", "allowed"),
    [
        ("kill", {"a=old b=new"}),
        ("ext4-ordered", {"a=old", "a=old b=", "a=old b=n", "a=old b=new"}),
        ("posix-min", {"a=old", "a=old b=", "a=old b=n", "a=old b=ne", "a=old b=\0\0\0", "a=old b=new"}),
    ],
)
def test_what_one_more_file_may_look_like(model: ModelName, allowed: set[str]) -> None:
    script = Script().create("a", OLD).fsync("a").fsync().ack(1).begin(2).create("b").write("b", b"n").write("b", b"ew")
    found = {tree for tree, acked in states(script.recording, model) if acked}
    if model == "kill":
        found &= {"a=old b=new"}
    assert allowed <= found
    assert all("garbage" not in tree and "\xa5" not in tree for tree in found)


def test_a_replacing_rename_is_one_change_but_for_alice() -> None:
    script = Script().create("a", OLD).fsync("a").fsync().create("b", NEW).fsync("b").fsync().ack(1)
    recording = script.rename("b", "a").ack(2).recording
    after = {tree for tree, acked in states(recording, "posix-min") if acked == 2}
    assert after == {"a=old b=new", "a=new"}
    torn = {tree for tree, acked in states(recording, "alice") if acked == 2} - after
    assert torn == {"a=new b=new", "a=old"}


def test_replacing_by_rename_without_fsync_leaves_an_empty_file_where_posix_is_all_there_is() -> None:
    script = Script().create("a", OLD).fsync("a").fsync().ack(1).create("b", NEW).rename("b", "a").ack(2)
    assert ("a=", 2) in states(script.recording, "posix-min")
    assert ("a=", 2) not in states(script.recording, "ext4-ordered")  # it writes the data before such a rename


def test_on_ext4_names_change_in_order() -> None:
    recording = Script().create("a").create("b").create("c").ack(1).recording
    assert {tree for tree, acked in states(recording, "ext4-ordered") if acked} == {"", "a=", "a= b=", "a= b= c="}
    assert "c=" in trees(recording, "posix-min")


def test_on_ext4_any_fsync_keeps_the_names_made_before() -> None:
    recording = Script().mkdir("d").create("d/a").create("b", b"x").fsync("b").ack(1).recording
    assert {tree for tree, acked in states(recording, "ext4-ordered") if acked} == {"b=x d/ d/a="}
    assert "b=x" in trees(recording, "posix-min")


def test_what_is_in_a_lost_directory_is_lost() -> None:
    recording = Script().mkdir("d").create("d/a", b"x").fsync("d/a").fsync("d").ack(1).recording
    assert {tree for tree, acked in states(recording, "posix-min") if acked} == {"", "d/ d/a=x"}


def test_overwriting_in_place_leaves_a_mixture() -> None:
    before, after = b"o" * 8192, b"n" * 8192
    script = Script().create("a", before).fsync("a").fsync().ack(1).write("a", after, offset=0).ack(2)
    mixtures = {"a=" + "n" * 4096 + "o" * 4096, "a=" + "o" * 4096 + "n" * 4096}
    assert mixtures <= trees(script.recording, "ext4-ordered")
    assert "a=" + "n" * 4096 + "o" * 4096 in trees(script.recording, "kill")


def test_the_key_of_a_state_includes_what_was_acknowledged() -> None:
    script = Script().create("a", OLD).fsync("a").ack(1).recording
    assert {("", 0), ("", 1)} <= states(script, "posix-min")


def test_a_weaker_model_is_named_for_what_it_allows_itself() -> None:
    recording = Script().create("a", b"x" * 9000).ack(1).recording
    explorer = Explorer(recording, MODEL_NAMES)
    first = {state.key: state.situation.model for state in explorer.states() if state.acked == 0}
    assert len(first) == len({*first})
    by_model = {share.model: share.states for share in explorer.shares}
    assert by_model["kill"] > 0
    assert by_model["posix-min"] > 0
    assert sum(by_model.values()) == len(states(recording))


def test_models_allow_what_the_weaker_ones_do() -> None:
    script = Script().mkdir("t").create("t/a", b"x" * 5000).create("t/b", b"y").fsync("t/a").rename("t", "f").ack(1)
    found = [states(script.recording, model) for model in MODEL_NAMES]
    for weaker, stronger in itertools.pairwise(found):
        assert weaker <= stronger


# Several ranks


def two_ranks() -> Script:
    script = Script(ranks=2).begin(1, rank=0).begin(1, rank=1)
    return script.create("a", b"x", rank=0).create("b", b"y", rank=1)


def test_each_rank_may_have_come_as_far_as_it_could() -> None:
    found = trees(two_ranks().recording, "kill")
    assert {"a=x", "b=y", "a= b=y", "a=x b="} <= found


def test_what_a_rank_knew_of_another_had_happened() -> None:
    script = two_ranks().barrier().create("done", b"1", rank=0).ack(1, rank=0)
    assert {t for t in trees(script.recording, "kill") if "done=1" in t} == {"a=x b=y done=1"}


def test_a_sync_does_not_cover_what_another_rank_may_have_done_later() -> None:
    script = Script(ranks=2).create("a", b"x", rank=1).fsync("", rank=0).ack(1, rank=0)
    assert ("", 1) in states(script.recording, "posix-min")
    known = Script(ranks=2).create("a", b"x", rank=1).message(1, 0).fsync("", rank=0).ack(1, rank=0)
    assert ("", 1) not in states(known.recording, "posix-min")


def test_all_cuts_are_consistent_and_none_is_missing() -> None:
    script = two_ranks().barrier().create("c", rank=0).create("d", rank=1)
    order = Order(script.recording)
    cuts, is_all = every_cut(order, 1000, seed=0)
    assert is_all
    possible = [
        (a, b)
        for a in range(len(order.by_rank[0]) + 1)
        for b in range(len(order.by_rank[1]) + 1)
        if order.is_possible((a, b))
    ]
    assert sorted(cuts) == sorted(possible)


def test_too_many_cuts_are_chosen_from_and_said_to_be() -> None:
    script = Script(ranks=4)
    for rank in range(4):
        for number in range(6):
            script.create(f"{rank}-{number}", rank=rank)
    order = Order(script.recording)
    cuts, is_all = every_cut(order, 200, seed=0)
    assert not is_all
    assert len(cuts) == len(set(cuts)) == 200
    assert all(order.is_possible(cut) for cut in cuts)
    assert order.whole in cuts
    ends, is_all = interval_ends(order, 200)
    assert is_all
    assert ends == [order.whole]


# Too many to try


def unsynced(num_files: int) -> Recording:
    script = Script().begin(1)
    for number in range(num_files):
        script.create(f"f{number}", b"x" * 9000)
    return script.ack(1).recording


def test_a_bounded_choice_says_how_much_it_tried() -> None:
    explorer = Explorer(unsynced(8), ["posix-min"], most=500, seed=3)
    assert len(list(explorer.states())) == explorer.shares[0].states
    share = explorer.shares[0]
    assert not share.is_exhaustive
    assert share.tried == 500
    assert share.possible > 10**8


@pytest.mark.parametrize("model", MODEL_NAMES)
def test_never_long_without_a_call_of_meanwhile(model: ModelName) -> None:
    calls = [0]
    explorer = Explorer(unsynced(6), [model], most=2000, meanwhile=lambda: calls.append(0))
    found = len(list(explorer.states()))
    assert len(calls) > max(found, explorer.shares[0].tried)


def test_the_same_seed_chooses_the_same_states_and_another_one_others() -> None:
    def keys(seed: int) -> list[bytes]:
        return [state.key for state in Explorer(unsynced(6), ["posix-min"], most=2000, seed=seed).states()]

    assert keys(1) == keys(1)
    assert keys(1) != keys(2)


def test_a_bounded_choice_tries_every_single_loss_first() -> None:
    recording = unsynced(5)
    bounded = trees_within(recording, 600)
    for number in range(5):
        assert any(f"f{number}=" not in tree and tree.count("=") == 4 for tree in bounded)


def trees_within(recording: Recording, most: int) -> set[str]:
    return {tree for tree, _ in states(recording, "posix-min", most=most)}
