"""The command, on small files of a user's: what it prints, what it returns, what it keeps."""

from __future__ import annotations

import json
import tarfile
import textwrap
from pathlib import Path

import pytest

from harness.__main__ import BROKEN, OK, UNKNOWN, main
from harness.crashstates.archive import read_archive
from harness.crashstates.record.tracing import why_unavailable

pytestmark = pytest.mark.skipif(why_unavailable() is not None, reason=f"strace: {why_unavailable()}")

LOAD = """
def load(directory):
    for step in (3, 2, 1):
        try:
            with open(f"{directory}/step-{step}", "rb") as file:
                data = file.read()
        except FileNotFoundError:
            continue
        return data
    return None
"""
SAFE = f"""
import os

def save(directory, step):
    with open(f"{{directory}}/tmp", "wb") as file:
        file.write(str(step).encode() * 9000)
        file.flush()
        os.fsync(file.fileno())
    os.rename(f"{{directory}}/tmp", f"{{directory}}/step-{{step}}")
    fd = os.open(directory, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)
{LOAD}
"""


@pytest.fixture
def saver(tmp_path: Path) -> Path:
    path = tmp_path / "saver.py"
    path.write_text(SAFE)
    return path


def without(text: str) -> str:
    assert text in SAFE
    return SAFE.replace(text, "")


def test_a_safe_save_is_valid(saver: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["crashstates", str(saver)]) == OK
    out = capsys.readouterr().out
    assert "valid" in out.splitlines()[0]
    assert "posix-min: " in out
    assert "all of them" in out


@pytest.mark.parametrize(
    ("removed", "words", "line"),
    [
        pytest.param(
            "        file.flush()\n        os.fsync(file.fileno())\n",
            "missing: fsync of tmp, after its last write and before rename of step-",
            "write(str(step)",
            id="the file is not synced before the rename",
        ),
        pytest.param(
            "    os.fsync(fd)\n",
            "missing: fsync of the directory that holds step-",
            "os.rename(",
            id="the directory is not synced after the rename",
        ),
    ],
)
def test_a_missing_call_is_named_with_its_place(
    saver: Path, capsys: pytest.CaptureFixture[str], removed: str, words: str, line: str
) -> None:
    saver.write_text(without(removed))
    assert main(["crashstates", str(saver)]) == BROKEN
    out = capsys.readouterr().out
    number = 1 + next(i for i, text in enumerate(saver.read_text().splitlines()) if line in text)
    assert words in out
    assert any("lost: operation" in text and f"saver.py:{number})" in text for text in out.splitlines())


def test_of_a_crash_that_loses_nothing_it_is_said_what_has_to_come_last(capsys: pytest.CaptureFixture[str]) -> None:
    early = Path(__file__).parents[2] / "workloads/planted/savers/acknowledges_at_dispatch.py"
    assert main(["crashstates", str(early), "--model", "kill"]) == BROKEN
    lines = capsys.readouterr().out.splitlines()
    number = next(i for i, text in enumerate(lines) if "missing: a whole save for load to take" in text)
    assert "after a crash between these two: " in lines[number]
    assert [text.split()[0] for text in lines[number - 2 : number]] == ["after", "before"]


def test_the_weakest_kind_of_crash_is_named(saver: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saver.write_text(without("    os.fsync(fd)\n"))
    assert main(["crashstates", str(saver), "--model", "kill"]) == OK
    assert main(["crashstates", str(saver), "--model", "ext4-ordered"]) == BROKEN


def test_json_says_the_same(saver: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saver.write_text(without("    os.fsync(fd)\n"))
    assert main(["crashstates", str(saver), "--json"]) == BROKEN
    told = json.loads(capsys.readouterr().out)
    assert told["outcome"] == "broken"
    assert {finding["verdict"] for finding in told["findings"]} == {"lost-ack", "lost-work"}
    assert all(model["exhaustive"] for model in told["models"])
    assert sum(model["states"] for model in told["models"]) == sum(told["verdicts"].values())


def test_a_kept_state_fails_again_until_it_is_mended(
    saver: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "kept"
    saver.write_text(SAFE.replace('f"{directory}/tmp"', 'f"{directory}/step-{step}"').replace("os.rename", "print"))
    assert main(["crashstates", str(saver), "--keep", str(kept)]) == BROKEN
    archives = sorted(kept.glob("*-wrong-state.tar"))
    assert archives
    with tarfile.open(archives[0]) as tar:
        assert "state.json" in tar.getnames()
    assert main(["crashstates", str(saver), "--replay", str(archives[0])]) == BROKEN
    assert "now: wrong-state" in capsys.readouterr().out
    saver.write_text(saver.read_text().replace("        return data", "        if len(data) == 9000: return data"))
    assert main(["crashstates", str(saver), "--replay", str(archives[0])]) == OK
    assert "now: safe-" in capsys.readouterr().out


def test_of_each_way_to_be_safe_a_state_is_kept_as_well(
    saver: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["crashstates", str(saver), "--keep", str(tmp_path / "kept")]) == OK
    archives = sorted((tmp_path / "kept").iterdir(), key=lambda path: path.name[2:])
    assert [path.name[2:] for path in archives] == ["safe-new.tar", "safe-old.tar"]
    assert "missing" not in capsys.readouterr().out
    kept = {read_archive(path).verdict: read_archive(path) for path in archives}
    assert (kept["safe-new"].acked, kept["safe-new"].begun) == (3, 3)
    assert (kept["safe-old"].acked, kept["safe-old"].begun) == (2, 3)
    for path in archives:
        assert main(["crashstates", str(saver), "--replay", str(path)]) == OK
        assert f"now: {read_archive(path).verdict}: " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("script", "words"),
    [
        pytest.param(
            """
            import mmap, os
            def save(directory, step):
                with open(f"{directory}/a", "w+b") as file:
                    file.truncate(4096)
                    with mmap.mmap(file.fileno(), 4096) as memory:
                        memory[:1] = bytes([step])
            def load(directory):
                return open(f"{directory}/a", "rb").read() if os.path.exists(f"{directory}/a") else None
            """,
            "memory",
            id="it writes through a memory map",
        ),
        pytest.param(
            """
            import os
            def save(directory, step):
                with open(os.path.join(directory, "..", "beside"), "w") as file:
                    file.write(str(step))
                with open(f"{directory}/a", "w") as file:
                    file.write(str(step))
            def load(directory):
                return open(f"{directory}/a", "rb").read() if os.path.exists(f"{directory}/a") else None
            """,
            "beside",
            id="it leaves a file outside the directory",
        ),
        pytest.param(
            """
            def save(directory, step):
                pass
            def load(directory):
                return None
            """,
            "did nothing",
            id="it saves nothing",
        ),
        pytest.param(
            """
            def save(directory, step):
                open(f"{directory}/a", "w").write("same")
            def load(directory):
                return None
            """,
            "returns the same",
            id="its load tells the steps not apart",
        ),
        pytest.param(
            """
            import os
            def save(directory, step):
                open(f"{directory}/a", "w").write(str(step))
            def load(directory):
                return open(f"{directory}/a").read()
            """,
            "load of an empty directory raised FileNotFoundError",
            id="its load fails where nothing is",
        ),
        pytest.param(
            """
            def save(directory, step):
                open(f"{directory}/a", "w").write(str(step))
            def load(directory):
                return object()
            """,
            "object",
            id="what it loads cannot be compared",
        ),
        pytest.param(
            """
            def save(directory, step):
                raise OSError("no room")
            def load(directory):
                return None
            """,
            "no room",
            id="its save raises",
        ),
        pytest.param("def save(directory, step): pass", "load", id="it has no load"),
        pytest.param("import no_such_module_of_anybody", "no_such_module_of_anybody", id="it cannot be imported"),
    ],
)
def test_what_cannot_be_judged_is_unknown_and_says_why(
    saver: Path, capsys: pytest.CaptureFixture[str], script: str, words: str
) -> None:
    saver.write_text(textwrap.dedent(script))
    assert main(["crashstates", str(saver)]) == UNKNOWN
    told = capsys.readouterr()
    assert words in told.out + told.err


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "No such file"), (b"hello", "no archive of a crash state")],
    ids=["there is none", "it is something else"],
)
def test_a_wrong_archive_is_refused(
    saver: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes | None, words: str
) -> None:
    path = tmp_path / "state.tar"
    if content is not None:
        path.write_bytes(content)
    assert main(["crashstates", str(saver), "--replay", str(path)]) == UNKNOWN
    assert words in capsys.readouterr().err
