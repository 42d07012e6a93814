"""What is known without reading is what reading would have told: for every reader, on hundreds of random states."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from harness._tests.crash_readers import Open
from harness._tests.random_trees import near_visible, random_visible
from harness.crashstates.ranks.session import Host, Session
from harness.crashstates.read.reading import Reader
from harness.crashstates.record.tracing import why_unavailable
from harness.crashstates.tree import File, Visible
from harness.errors import LaunchError, RecordError

pytestmark = pytest.mark.skipif(bool(why := why_unavailable()), reason=str(why))

T = 1_700_000_000.0
NUM_STATES = 36


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    with Host() as host:
        yield host


READERS = {
    "that opens one file": "p = directory / 'a'\nreturn p.read_bytes() if p.is_file() else None",
    "that lists": "return sorted(os.listdir(directory))",
    "that walks": "return sorted((d, sorted(a), sorted(b)) for d, a, b in os.walk(directory))",
    "that looks through links": "return [sorted(os.listdir(p)) for p in sorted(directory.glob('*')) if p.is_dir()]",
    "that asks for kinds": "return [(e.name, e.is_dir()) for e in sorted(os.scandir(directory), key=str)]",
    "that asks for sizes": "return [p.stat().st_size for p in sorted(directory.rglob('*')) if p.is_file()]",
    "that follows a link": "p = directory / 'latest' / 'a'\nreturn p.read_bytes() if p.exists() else None",
    "that reads a link": "p = directory / 'latest'\nreturn os.readlink(p) if p.is_symlink() else None",
    "that resolves a link, then lists": "p = (directory / 'latest').resolve()\nreturn sorted(os.listdir(p))",
    "that opens by way of a linked directory's descriptor": """
        fd = os.open(directory / 'latest', os.O_RDONLY | os.O_DIRECTORY)
        return os.read(os.open('a', os.O_RDONLY, dir_fd=fd), 99), sorted(os.listdir(fd))
        """,
    "that takes the newest": """
        found = [p for p in directory.iterdir() if not p.is_symlink()]
        return max(found, key=lambda p: (p.stat().st_mtime, p.name)).name if found else None
        """,
    "that takes the newest of the open files": """
        fds = [os.open(p, os.O_RDONLY) for p in sorted(directory.rglob('*')) if p.is_file()]
        return [os.fstat(fd).st_mtime_ns > os.fstat(fds[0]).st_mtime_ns for fd in fds]
        """,
    "that puts aside and reads again": """
        for name in ('step-2', 'step-1', 'a'):
            p = directory / name
            if p.is_dir() and not p.is_symlink() and (p / 'a').exists():
                p.rename(directory / 'corrupt')
                break
        return sorted((q.name, q.read_bytes()) for q in (directory / 'corrupt').glob('*') if q.is_file())
        """,
    "that renames over another": """
        (directory / 'b').rename(directory / 'a')
        return (directory / 'a').read_bytes(), sorted(os.listdir(directory))
        """,
    "that exchanges two names": """
        libc = ctypes.CDLL(None, use_errno=True)
        code = libc.renameat2(-100, bytes(directory / 'a'), -100, bytes(directory / 'b'), 2)
        return code, [(directory / n).read_bytes() for n in 'ab' if (directory / n).is_file()]
        """,
    "that makes a link and goes through it": """
        (directory / 'way').symlink_to('step-1')
        return sorted(os.listdir(directory / 'way'))
        """,
    "that makes a second name": "os.link(directory / 'a', directory / 'c')\nreturn (directory / 'c').read_bytes()",
    "that removes a directory if it is empty": """
        try:
            os.rmdir(directory / 'step-1')
        except OSError as error:
            return error.errno
        """,
    "that deletes": """
        shutil.rmtree(directory / 'step-1', ignore_errors=True)
        return sorted(os.listdir(directory)), (directory / 'step-1').exists()
        """,
    "that writes and reads back": """
        with open(directory / 'a', 'ab') as f:
            f.write(b'!')
        return (directory / 'a').read_bytes()
        """,
    "that changes a file and sets its time back": """
        p = directory / 'a'
        s = p.stat()
        with open(p, 'r+b') as f:
            f.write(b'X')
        os.utime(p, ns=(s.st_atime_ns, s.st_mtime_ns))
        return p.read_bytes()
        """,
    "that goes there": "os.chdir(directory)\nos.chdir('step-1')\nreturn open('a').read(), sorted(os.listdir('..'))",
    "that goes where a link leads": "os.chdir(directory / 'latest')\nreturn open('a').read(), os.listdir()",
    "that goes there by descriptor": """
        os.fchdir(os.open(directory / 'step-2', os.O_RDONLY))
        return os.access('a', os.R_OK), os.path.exists('../b')
        """,
    "that climbs out and in again": "return open(f'{directory}/../{directory.name}/step-1/../a', 'rb').read()",
    "that has spare slashes": "return open(f'{directory}//./a', 'rb').read(), os.path.isdir(f'{directory}/b/')",
    "that comes by another way": """
        way = directory.parent / 'way'
        if not way.is_symlink():
            way.symlink_to(directory.name)
        return (way / 'a').read_bytes()
        """,
    "that comes by way of /proc": """
        os.chdir(directory)
        return os.path.exists('/proc/self/cwd/a')
        """,
    "in another language": "return subprocess.run(['cat', 'a', 'step-1/a'], cwd=directory, capture_output=True).stdout",
    "in a shell": "return subprocess.run('ls -A */*; cat */a', shell=True, cwd=directory, capture_output=True).stdout",
    "in a shell that asks which is newer": """
        return subprocess.run('[ a -nt b ]; echo $?', shell=True, cwd=directory, capture_output=True).stdout
        """,
    "in a thread": """
        with ThreadPoolExecutor(3) as pool:
            names = sorted(os.listdir(directory))
            return list(pool.map(lambda n: os.path.getsize(directory / n) if (directory / n).is_file() else n, names))
        """,
    "in a process that is forked": """
        with multiprocessing.get_context('fork').Pool(1) as pool:
            return pool.apply(sorted, [os.listdir(directory)]), pool.apply(os.path.isfile, [directory / 'a'])
        """,
    "that maps a file": """
        with open(directory / 'a', 'rb') as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as m:
            return bytes(m)
        """,
    "that locks a file and never reads it": """
        fd = os.open(directory / 'a', os.O_RDWR | os.O_CREAT)
        fcntl.flock(fd, fcntl.LOCK_EX)
        os.ftruncate(fd, 0)
        os.pwrite(fd, b'mine', 0)
        return (directory / 'b').read_bytes()
        """,
    "that seeks the end": "return os.lseek(os.open(directory / 'a', os.O_RDONLY), 0, os.SEEK_END)",
    "that appends and asks where it is": """
        fd = os.open(directory / 'a', os.O_WRONLY | os.O_APPEND)
        return os.write(fd, b'!'), os.lseek(fd, 0, os.SEEK_CUR)
        """,
    "that has the kernel copy": """
        shutil.copyfile(directory / 'a', directory / 'c')
        return (directory / 'c').read_bytes()
        """,
    "that puts a file of its own in place": """
        fd = os.open(directory / 'draft', os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        os.write(fd, b'new')
        os.rename(directory / 'draft', directory / 'a')
        return (directory / 'a').read_bytes(), sorted(os.listdir(directory))
        """,
    "that reads by a descriptor of what was renamed since": """
        fd = os.open(directory / 'a', os.O_RDONLY)
        os.rename(directory / 'a', directory / 'b')
        return os.read(fd, 99)
        """,
}
PRELUDE = """
import ctypes, fcntl, mmap, multiprocessing, os, shutil, subprocess
from concurrent.futures import ThreadPoolExecutor
"""


def compare(reader: Reader, states: list[Visible]) -> None:
    """Twice: what comes of a state is what comes of it on fresh ranks, known or not."""
    fresh = [reader.read(visible) for visible in states]
    for _ in range(2):
        for visible, expected in zip(states, fresh, strict=True):
            assert reader.outcome(visible) == expected, visible


@pytest.mark.parametrize("kind", READERS)
def test_a_reader(host: Host, open_reader: Open, tmp_path: Path, kind: str) -> None:
    rng = random.Random(kind)
    reader = open_reader(host, READERS[kind], PRELUDE)
    root = str(tmp_path / "there" / "root")
    states = [near_visible(rng, root=root) if n % 6 else random_visible(rng, root=root) for n in range(NUM_STATES)]
    compare(reader, states)
    assert reader.answered >= NUM_STATES  # the second time around all is known
    assert reader.problems == []


TORCH_READERS = {
    "torch.load": "return torch.load(directory / 'model.pt', weights_only=True)",
    "torch.load with mmap": "return torch.load(directory / 'model.pt', weights_only=True, mmap=True)",
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    import torch

    path = tmp_path_factory.mktemp("model") / "model.pt"
    torch.save({"w": torch.arange(300.0), "b": torch.ones(3)}, path)
    return path.read_bytes()


@pytest.mark.parametrize("kind", TORCH_READERS)
def test_a_torch_reader(torch_host: Host, open_reader: Open, model: bytes, kind: str) -> None:
    rng = random.Random(kind)
    reader = open_reader(torch_host, TORCH_READERS[kind], "import torch")
    states: list[Visible] = [{}]
    for _ in range(20):
        torn = bytearray(model)
        torn[rng.randrange(len(torn))] ^= 1 << rng.randrange(8)
        data = rng.choice((model, bytes(torn), model[: rng.randrange(len(model))]))
        other = {"other": File(b"x", T)} if rng.random() < 0.5 else {}
        states.append({"model.pt": File(data, T), **other})
    compare(reader, states)
    assert any(outcome.has_returned for outcome in map(reader.outcome, states))


def test_ranks_that_decide_together(torch_host: Host, open_reader: Open) -> None:
    body = """
    own = directory / f'rank-{dist.get_rank()}'
    each = [None, None]
    dist.all_gather_object(each, own.read_bytes() if own.is_file() else None)
    if None in each:
        return None
    if each[0] != each[1]:
        raise ValueError('the ranks have different ones')
    return (directory / each[dist.get_rank()].decode()).exists()
    """
    reader = open_reader(torch_host, body, "import torch.distributed as dist\nranks = 2")
    rng = random.Random(5)
    states: list[Visible] = []
    for _ in range(24):
        state: Visible = {}
        for name in ("a", "b", "other", "rank-0", "rank-1"):
            if rng.random() < 0.7:
                state[name] = File(rng.choice((b"a", b"b")), T)
        states.append(state)
    compare(reader, states)


def test_what_a_load_changed_through_a_mapping_is_put_right(host: Host, tmp_path: Path) -> None:
    file = tmp_path / "users.py"
    file.write_text(
        "import mmap\ndef save(d, s): pass\ndef load(d):\n    with open(d / 'a', 'r+b') as f:\n"
        "        m = mmap.mmap(f.fileno(), 0)\n        m[0] += 1\n        return bytes(m), (d / 'b').exists()\n"
    )
    with (
        tempfile.TemporaryDirectory(dir="/dev/shm") as memory,  # where such a change leaves no trace in the times
        Session(file, host=host) as session,
        Reader(session, Path(memory, "root")) as reader,
    ):
        states: list[Visible] = [{"a": File(b"1", T)}, {"a": File(b"1", T), "b": File(b"", T)}]
        for state in states:
            assert "b'2'" in str(reader.outcome(state))


def test_a_load_that_strace_did_not_see_to_its_end_is_no_outcome(host: Host, tmp_path: Path) -> None:
    file = tmp_path / "users.py"
    file.write_text("def save(d, s): pass\ndef load(d): return (d / 'a').exists()\n")
    with Session(file, host=host) as session:
        reader = Reader(session, tmp_path / "root")
        reader.outcome({})
        (strace,) = [child for child in psutil.Process().children() if child.name() == "strace"]
        strace.kill()
        with pytest.raises(RecordError, match=r"strace (saw the end of 0 of 1 loads|has ended)"):
            reader.outcome({"a": File(b"", T)})
        with pytest.raises(LaunchError, match="strace ended"):
            reader.close()
