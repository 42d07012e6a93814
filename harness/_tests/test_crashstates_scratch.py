"""What a run needs while it runs goes with it, however it ends."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from harness.crashstates.scratch import scratch
from harness.crashstates.trouble.disk_full import can_mount

OWNER = """
import subprocess, sys
from pathlib import Path
from harness.crashstates.scratch import scratch
with scratch(Path(sys.argv[1])) as directory:
    (directory / "below").mkdir()
    (directory / "below" / "file").write_text("x")
    if "mount" in sys.argv:
        (directory / "mounted").mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(directory / "mounted")], check=True)
    print(directory, flush=True)
    sys.stdin.readline()
"""


def owner(place: Path, *words: str) -> tuple[subprocess.Popen[str], Path]:
    """A process with a directory of its own in ``place``."""
    command = [sys.executable, "-c", OWNER, str(place), *words]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    return process, Path(process.stdout.readline().strip())


@pytest.mark.parametrize("words", [(), ("mount",)], ids=["with files", "with a file system mounted in it"])
def test_the_next_one_removes_what_a_killed_one_has_left_and_nothing_else(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    if words and not can_mount():
        pytest.skip("this process may not mount a tmpfs; run as root")
    killed, left = owner(tmp_path, *words)
    alive, used = owner(tmp_path)
    (tmp_path / "chaos-crashstates-being-made").mkdir()  # nothing in it yet
    try:
        killed.kill()
        killed.communicate()
        assert killed.returncode == -signal.SIGKILL
        assert left.is_dir()
        next_one, mine = owner(tmp_path)
        assert not left.exists()
        assert used.is_dir()
        assert mine.is_dir()
        next_one.communicate("\n")
        assert (tmp_path / "chaos-crashstates-being-made").is_dir()
    finally:
        alive.communicate("\n")
    assert not used.exists()


def test_it_is_gone_at_the_end(tmp_path: Path) -> None:
    with scratch(tmp_path) as directory:
        (directory / "file").write_text("x")
    assert list(tmp_path.iterdir()) == []
