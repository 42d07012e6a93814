"""Nobody is asked for the names of the addresses that the ranks' stores connect."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from harness._tests.launched import Run, shown

# The only name server of this thread is a socket that never answers; whether it was asked is what tells.
ASKED = """
import ctypes, datetime, socket, struct
import torch
from torch._C._distributed_c10d import TCPStore

def asked():
    libc = ctypes.CDLL(None)
    libc.__res_init()
    libc.__res_state.restype = ctypes.c_void_p
    state = libc.__res_state()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        address = struct.pack("=H", socket.AF_INET) + struct.pack("!H", server.getsockname()[1]) + bytes([127, 0, 0, 1])
        for offset, value in ((0, struct.pack("=ii", 1, 1)), (16, struct.pack("=i", 1)), (20, address)):
            ctypes.memmove(state + offset, value, len(value))
        TCPStore("127.0.0.1", 0, is_master=True, timeout=datetime.timedelta(seconds=10), wait_for_workers=False)
        server.setblocking(False)
        try:
            return bool(server.recv(512))
        except BlockingIOError:
            return False
"""


def printed(text: str) -> str:
    command = [sys.executable, "-c", ASKED + text]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.strip()


@pytest.fixture(scope="module")
def asks() -> None:
    """Skips where torch by itself asks nobody either."""
    if printed("print(asked())") == "False":
        pytest.skip("torch asks no name server for the name of ::ffff:127.0.0.1 on this machine")


@pytest.mark.usefixtures("asks")
def test_torch_asks_no_name_server_afterwards() -> None:
    assert printed("from harness.rank import host_names; host_names.quote_addresses(); print(asked())") == "False"


@pytest.mark.usefixtures("asks")
def test_the_ranks_of_a_run_ask_none(run: Run, tmp_path: Path) -> None:
    history = run(ASKED + "show(asked=asked())")
    assert [shown(tmp_path, history, rank) for rank in (0, 1)] == [{"asked": False}] * 2


def test_others_find_their_name_servers_as_before() -> None:
    text = """
    from harness.rank import host_names
    libc = ctypes.CDLL(None)
    libc.__res_init()
    libc.__res_state.restype = ctypes.c_void_p
    num_servers = ctypes.c_int.from_address(libc.__res_state() + 16)
    before = num_servers.value
    host_names.quote_addresses()
    print(before > 0, num_servers.value == before)
    """
    assert printed(textwrap.dedent(text)) == "True True"
