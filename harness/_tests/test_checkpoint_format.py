"""The format's public face: the controller reads checkpoints with it, and has no torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from harness.checkpoint import format as checkpoint_format

READER = """
import sys
before = set(sys.modules)  # what the interpreter's own start brings in
from harness.checkpoint.format import inspect, newest_valid
assert inspect(sys.argv[1]) == [] and newest_valid(sys.argv[1]) is None
roots = {name.partition(".")[0] for name in set(sys.modules) - before}
print(sorted(roots - set(sys.stdlib_module_names)))
"""


def test_reading_needs_the_standard_library_alone(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", READER, str(tmp_path / "nowhere")], capture_output=True, text=True, check=True
    )
    assert done.stdout == "['harness']\n"


def test_a_directory_that_cannot_be_read_is_an_error_and_a_missing_one_is_empty(tmp_path: Path) -> None:
    assert checkpoint_format.inspect(tmp_path / "nowhere") == []
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        checkpoint_format.inspect(tmp_path / "file")


def test_the_table_of_failpoints_names_only_writes_as_torn() -> None:
    torn = {name for name, failpoint in checkpoint_format.FAILPOINTS.items() if failpoint.torn}
    assert torn == {"ckpt.shard.write", "ckpt.manifest.write", "ckpt.complete.write"}
