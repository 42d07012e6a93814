"""Trouble on real saves: that it comes up where it is put, and what it finds."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from harness.__main__ import BROKEN, OK, UNKNOWN, main
from harness.crashstates.command import examine_scenario
from harness.crashstates.expect import weigh
from harness.crashstates.positions import LOOKUPS, SYNCS, WRITES, path_below
from harness.crashstates.ranks.session import Host
from harness.crashstates.record.strace import Call, Fd, Value
from harness.crashstates.record.tracing import why_unavailable
from harness.crashstates.sweep import Sweep, sweep
from harness.crashstates.testbed import Testbed
from harness.crashstates.trouble import TROUBLES, slow
from harness.crashstates.trouble.base import Attempt, Trouble
from harness.crashstates.trouble.disk_full import can_mount, has_stopped
from harness.planted_savers import PlantedSaver, healthy_savers, planted_savers
from harness.scenario import load_saver_scenario
from harness.scenario.saver import TroubleName

pytestmark = pytest.mark.skipif(why_unavailable() is not None, reason=f"strace: {why_unavailable()}")

(TWO_RANKS,) = [file for file in healthy_savers() if file.stem == "two_ranks"]
PLANTED = [planted for planted in planted_savers() if planted.trouble is not None]

SAFE = """
import os
from hashlib import sha256

def sync(path):
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)

def write(path, data):
    with open(path, "wb") as file:
        file.write(data)

def save(directory, step):
    data = str(step).encode() * 9000
    write(f"{directory}/tmp", sha256(data).digest() + data)
    sync(f"{directory}/tmp")
    os.rename(f"{directory}/tmp", f"{directory}/step-{step}")
    sync(directory)

def load(directory):
    for step in (3, 2, 1):
        if os.path.exists(f"{directory}/step-{step}"):
            data = open(f"{directory}/step-{step}", "rb").read()
            if sha256(data[32:]).digest() == data[:32]:
                return data[32:]
    return None
"""
SYNC = "    os.fsync(fd)\n"
WRITE = "        file.write(data)\n"
BEFORE = '    write(f"{directory}/tmp"'
SYNC_TMP = '    sync(f"{directory}/tmp")\n'


def with_(old: str, new: str) -> str:
    """The safe one with other lines, indented as those that they replace."""
    assert old in SAFE
    indent = " " * (len(old) - len(old.lstrip()))
    return SAFE.replace(old, textwrap.indent(textwrap.dedent(new).strip(), indent) + "\n" * old.endswith("\n"))


FOR_EVER = with_(
    SYNC,
    """
    while True:
        try:
            os.fsync(fd)
            break
        except OSError:
            fd = 99  # of nothing: every further try fails as well
    """,
)
IN_A_HURRY = with_("    os.rename(", "import time; began_s = time.monotonic()\nos.rename(").replace(
    "    sync(directory)", "    assert time.monotonic() - began_s < 0.5, 'too late'\n    sync(directory)"
)
WITHOUT_PERMISSION = SAFE.replace(
    "def save(",
    "def save(directory, step):\n    try: real(directory, step)\n    except PermissionError: pass\n\ndef real(",
)
MISSING_THE_LAST = with_(
    BEFORE, f"""if step > 1 and not os.path.exists(f"{{directory}}/step-{{step - 1}}"): return\n{BEFORE.strip()}"""
)
ENDING_THE_LAST = with_(BEFORE, f"""write(f"{{directory}}/step-{{step - 1}}", b"")\n{BEFORE.strip()}""")
TRUSTING = SAFE.replace("if sha256(data[32:]).digest() == data[:32]:", "if True:")
SYNCING_AGAIN = with_(SYNC, "try: os.fsync(fd)\nexcept OSError: os.fsync(fd)")
WRITING_ANEW = with_(
    SYNC_TMP,
    f"""
    try:
        {SYNC_TMP.strip()}
    except OSError:
        write(f"{{directory}}/tmp", sha256(data).digest() + data)
        {SYNC_TMP.strip()}
    """,
)
POINTING = SAFE.replace(
    "    sync(directory)", """    open(f"{directory}/latest", "w").write(f"step-{step}")\n    sync(directory)"""
).replace(
    "def load(directory):\n",
    """
def load(directory):
    latest = f"{directory}/latest"
    if not os.path.exists(latest) or not open(latest).read():
        return None
""",
)
SWALLOWING = with_(WRITE, "try: file.write(data); file.flush()\nexcept OSError: pass")
OWNED = SAFE.replace("def save(directory, step):\n", "def save(directory, step):\n    own(directory)\n").replace(
    "def load(directory):\n",
    """
import fcntl

owned = []

def own(directory):
    if not owned:
        owned.append(os.open(f"{directory}/owner", os.O_CREAT | os.O_RDWR))
        fcntl.flock(owned[0], fcntl.LOCK_EX | fcntl.LOCK_NB)

def load(directory):
    own(directory)
""",
)
EXCLUSIVE = SAFE.replace('"wb"', '"xb"')


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    with Host() as host:
        yield host


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "checkpoints").mkdir()
    return tmp_path / "checkpoints"


def swept(host: Host, script: str, root: Path, name: str, save_deadline_s: float = 10.0) -> tuple[Sweep, list[Attempt]]:
    """What one trouble does to a script, and all of its attempts."""
    file = root.with_name("saver.py")
    file.write_text(script)
    attempts: list[Attempt] = []

    def on_attempt(trouble: Trouble, attempt: Attempt) -> None:
        assert trouble.name == name
        attempts.append(attempt)

    found = sweep(file, root, [name], host=host, save_deadline_s=save_deadline_s, on_attempt=on_attempt)
    assert found.problems == []
    assert found.calibration == []
    return found.sweeps[0], attempts


@pytest.mark.parametrize("name", TROUBLES)
def test_a_safe_save_is_left_in_peace_and_every_trouble_comes_up(host: Host, root: Path, name: str) -> None:
    found, attempts = swept(host, SAFE, root, name)
    assert found.num_tries >= 1
    assert found.num_fired == found.num_tries
    assert found.failures == {}
    assert [a for a in attempts if a.has_returned != a.saved.startswith("returned")] == [] or name == "two-writers"


def test_each_call_of_the_save_is_befallen_once_by_its_error(host: Host, root: Path) -> None:
    _, attempts = swept(host, SAFE, root, "io-error")
    befallen = [(a.position.call, a.position.k, a.position.path) for a in attempts if a.position is not None]
    assert befallen == [
        ("write", 1, "tmp"),
        ("close", 1, "tmp"),
        ("close", 2, "tmp"),
        ("close", 3, "."),
        ("fsync", 1, "tmp"),
        ("fsync", 2, "."),
    ]
    assert {a.verdict for a in attempts if not a.has_returned} <= {"safe-old", "safe-new"}


@pytest.mark.parametrize("planted", PLANTED, ids=[planted.name for planted in PLANTED])
def test_what_only_trouble_finds_is_found(host: Host, root: Path, planted: PlantedSaver) -> None:
    assert planted.trouble is not None
    (found,) = sweep(planted.file, root, [planted.trouble], host=host).sweeps
    assert {verdict for verdict, _ in found.failures} == {*planted.verdicts}


@pytest.mark.parametrize(
    ("name", "script", "verdict", "words"),
    [
        pytest.param("io-error", FOR_EVER, "hang", "did not return within 1", id="a save that tries for ever"),
        pytest.param(
            "read-only", WITHOUT_PERMISSION, "lost-ack", "returned", id="a save that hides that it may not write"
        ),
        pytest.param(
            "late-visible", MISSING_THE_LAST, "lost-ack", "returned", id="a save that is left out for want of the last"
        ),
        pytest.param(
            "disk-full", ENDING_THE_LAST, "lost-work", "raised OSError", id="a save that ends the last one first"
        ),
        pytest.param(
            "disk-full", POINTING, "lost-work", "returned", id="a pointer that is emptied before there is room"
        ),
        pytest.param(
            "killed", ENDING_THE_LAST, "lost-work", "SIGKILL", id="a save that ends the last one, and then is killed"
        ),
        pytest.param("lying-fsync", TRUSTING, "wrong-state", "returned", id="a load that trusts the disk"),
    ],
)
def test_trouble_finds(host: Host, root: Path, name: str, script: str, verdict: str, words: str) -> None:
    found, attempts = swept(host, script, root, name, save_deadline_s=1.0)
    failing = [attempt for attempt in attempts if attempt.verdict == verdict]
    assert failing, found.verdicts
    assert words in failing[0].saved


def test_a_save_that_does_not_wait_for_a_slow_disk(host: Host, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slow, "DELAY_MS", 600)
    found, (attempt,) = swept(host, IN_A_HURRY, root, "slow", save_deadline_s=30.0)
    assert (attempt.verdict, attempt.has_returned) == ("refused", False)
    assert "too late" in attempt.saved
    assert ("refused", False) in found.failures


def test_an_fsync_that_failed_may_be_made_good_only_by_writing_all_anew(host: Host, root: Path) -> None:
    found, _ = swept(host, SYNCING_AGAIN, root, "io-error")
    assert {verdict for verdict, _ in found.failures} == {"lost-ack"}
    found, attempts = swept(host, WRITING_ANEW, root, "io-error")
    assert found.failures == {}
    assert [a.saved for a in attempts if a.position and (a.position.call, a.position.k) == ("fsync", 1)] == ["returned"]


def test_whoever_owns_the_directory_while_it_lives_is_gone_before_the_next_comes(host: Host, root: Path) -> None:
    found, attempts = swept(host, OWNED, root, "disk-full")
    assert found.failures == {}
    assert any(attempt.again is not None for attempt in attempts)


IN_THREADS = (
    SAFE.replace("def save(directory, step):\n", "def saves(directory, step):\n")
    + """
def save(directory, step):
    for name in ("first", "second"):
        thread = threading.Thread(target=write, args=(f"{directory}/{name}", b"x"))
        thread.start()
        thread.join()
    saves(directory, step)
"""
)


def test_a_call_of_another_thread_is_not_taken_for_the_one_that_was_meant(host: Host, root: Path) -> None:
    _, attempts = swept(host, "import threading\n" + IN_THREADS, root, "killed")
    fired = {a.position.path: a.has_fired for a in attempts if a.position is not None and a.position.call == "write"}
    assert fired == {"first": True, "second": False, "tmp": False}  # each the first write of its thread


@pytest.mark.parametrize("name", ["disk-full", "killed"])
def test_a_failed_save_may_not_be_in_the_way_of_the_next(host: Host, root: Path, name: str) -> None:
    found, _ = swept(host, EXCLUSIVE, root, name)
    failure = found.failures["refused", True]
    assert failure.example.verdict == "safe-old"
    assert failure.example.again is not None
    assert "FileExistsError" in failure.example.again[1]


def test_with_two_ranks_trouble_comes_up_on_the_one_it_is_put_on(root: Path) -> None:
    with Testbed(TWO_RANKS, root) as bed:
        assert {p.rank for p in bed.positions(SYNCS)} == {0, 1}
        assert {p.rank for p in bed.positions(LOOKUPS)} == {0, 1}
        late = list(TROUBLES["late-visible"].attempts(bed))
        assert {attempt.rank for attempt in late} == {1}
        (of_rank_1, *_) = [p for p in bed.positions(SYNCS) if p.rank == 1]
        failed = bed.attempt_and_lose("EIO", of_rank_1, "error=EIO")
        assert "rank 1 raised OSError" in failed.saved
        assert failed.verdict == "safe-old"
        (write, *_) = [p for p in bed.positions(WRITES) if p.rank == 1]
        assert bed.attempt("ENOSPC", write, inject=f"{write.call}:error=ENOSPC:when={write.k}").verdict == "safe-old"
        assert not bed.attempt("ENOSPC", write, inject=f"{write.call}:error=ENOSPC:when=999").has_fired
        assert bed.problems == []


@pytest.mark.skipif(not can_mount(), reason="needs the right to mount a tmpfs")
def test_a_small_file_system_is_gone_afterwards(host: Host, root: Path) -> None:
    _, attempts = swept(host, SAFE, root, "disk-full")
    assert any(attempt.what.endswith("bytes left") and attempt.has_fired for attempt in attempts)
    assert not root.is_mount()


FILE = Fd(3, "/root/a/b")
CWD = Fd(-100, "/root/a")


@pytest.mark.parametrize(
    ("name", "arguments", "path"),
    [
        ("write", (FILE, b"/root/x", 7), "a/b"),
        ("write", (Fd(1, "/dev/null"), b"/root/x", 7), None),
        ("write", (Fd(1, "TCP:[127.0.0.1:1->127.0.0.1:2]"), b"x", 1), None),
        ("fsync", (Fd(3, "/root"),), "."),
        ("close", (Fd(3, "/rooted/a"),), None),
        ("openat", (CWD, b"c", "O_RDONLY"), "a/c"),
        ("openat", (CWD, b"../../etc", "O_RDONLY"), None),
        ("newfstatat", (FILE, b"", {}, "AT_EMPTY_PATH"), "a/b"),
        ("stat", (b"d",), "cwd/d"),
        ("rename", (b"/tmp/x", b"/root/y"), "y"),
        ("copy_file_range", (Fd(3, "/tmp/x"), None, FILE, None, 9, 0), "a/b"),
        ("copy_file_range", (FILE, None, Fd(3, "/tmp/x"), None, 9, 0), None),
    ],
)
def test_the_path_that_a_call_is_about(name: str, arguments: tuple[Value, ...], path: str | None) -> None:
    assert path_below(Call(1, 0.0, name, arguments, 0), "/root", "/root/cwd") == path


@pytest.mark.parametrize(
    ("result", "error", "stopped"),
    [(10, None, False), (4, None, True), (-1, "ENOSPC", True), (-1, "EFBIG", True), (-1, "EIO", False)],
)
def test_a_write_that_met_the_end_of_the_disk(result: int, error: str | None, stopped: bool) -> None:
    assert has_stopped(Call(1, 0.0, "write", (FILE, b"0123456789", 10), result, error)) == stopped


@pytest.mark.parametrize(
    ("script", "names", "code", "words"),
    [
        pytest.param(SAFE, ["slow", "read-only"], OK, ["valid", "slow", "1 try, 1 fired: 1 safe-new"], id="valid"),
        pytest.param(
            SWALLOWING,
            ["io-error"],
            BROKEN,
            ["broken", "lost-ack (", "EIO at write 1, of tmp", "save returned", "what to do: "],
            id="broken",
        ),
        pytest.param(
            SAFE.replace(SYNC, ""), ["lying-fsync"], UNKNOWN, ["nothing that it could befall"], id="nothing to befall"
        ),
    ],
)
def test_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], script: str, names: list[str], code: int, words: list[str]
) -> None:
    (tmp_path / "saver.py").write_text(script)
    assert main(["crashstates", str(tmp_path / "saver.py"), "--trouble", *names]) == code
    out = capsys.readouterr().out
    for word in words:
        assert word in out


def test_the_command_tells_machines_where_it_failed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "saver.py").write_text(EXCLUSIVE)
    assert main(["crashstates", str(tmp_path / "saver.py"), "--json", "--trouble", "disk-full"]) == BROKEN
    (found,) = json.loads(capsys.readouterr().out)["troubles"]
    assert (found["trouble"], found["fired"]) == ("disk-full", found["tries"])
    (failure,) = found["failures"]
    assert (failure["verdict"], failure["again"], failure["call"], failure["k"]) == ("refused", True, "write", 1)
    assert failure["site"].endswith("saver.py:12")


def test_a_scenario_may_ask_for_trouble(tmp_path: Path) -> None:
    (tmp_path / "saver.py").write_text(SWALLOWING)
    (tmp_path / "scenario.toml").write_text(
        'saver = "saver.py"\nmodels = ["kill"]\ntroubles = ["io-error"]\n'
        '[expect]\noutcome = "broken"\nverdicts = ["lost-ack"]\n'
    )
    scenario = load_saver_scenario(tmp_path / "scenario.toml")
    found = examine_scenario(scenario)
    assert weigh(found, scenario.expect) == ("passed", [])
    assert set(found.verdicts) <= {"safe-old", "safe-new"}
    assert weigh(examine_scenario(scenario, disarm=True), scenario.expect)[0] == "unknown"


def test_a_scenario_knows_every_trouble() -> None:
    assert get_args(TroubleName) == tuple(TROUBLES)
