"""What need not be read again, and ranks that are kept from one read to the next."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness._tests.crash_readers import Open
from harness.crashstates.examine import examine
from harness.crashstates.ranks.outcome import Hung, Loaded
from harness.crashstates.ranks.session import Host
from harness.crashstates.read.reading import Doubtful
from harness.crashstates.record.tracing import why_unavailable
from harness.crashstates.tree import Directory, File, Visible

pytestmark = pytest.mark.skipif(bool(why := why_unavailable()), reason=str(why))

T = 1_700_000_000.0


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    with Host() as host:
        yield host


class TestWhatIsNotRead:
    def test_states_that_differ_elsewhere_are_known(self, host: Host, open_reader: Open) -> None:
        reader = open_reader(host, "return (directory / 'a').read_bytes()")
        for n in range(20):
            state: Visible = {"a": File(b"1", T), "b": File(b"%d" % n, T + n), f"c{n}": Directory()}
            assert reader.outcome(state).has_returned
        assert (reader.reads, reader.answered) == (1, 19)

    def test_what_is_in_a_file_that_is_opened_and_not_read_does_not_matter(self, host: Host, open_reader: Open) -> None:
        body = "fd = os.open(directory / 'a', os.O_RDWR)\nos.pwrite(fd, b'x', 0)\nos.close(fd)"
        reader = open_reader(host, body, "import os")
        for n in range(20):
            assert reader.outcome({"a": File(b"1" * n, T + n)}).has_returned
        assert (reader.reads, reader.answered) == (1, 19)

    def test_the_order_of_times_counts_and_not_the_times(self, host: Host, open_reader: Open) -> None:
        reader = open_reader(host, "return max(directory.iterdir(), key=os.path.getmtime).name", "import os")
        found = [
            reader.outcome({"a": File(b"", T + a), "b": File(b"", T + b)})
            for a, b in ((1, 2), (5, 9), (2, 1), (2, 0.5))
        ]
        assert found[0] == found[1] != found[2] == found[3]
        assert reader.reads == 2

    def test_a_hang_is_waited_for_once(self, host: Host, open_reader: Open) -> None:
        body = "while not (directory / 'go').exists():\n    time.sleep(0.01)\n"
        reader = open_reader(host, body, "import time", deadline_s=0.5)
        for n in range(5):
            assert isinstance(reader.outcome({"x": File(b"%d" % n, T)}).cause, Hung)
        assert reader.reads == 1
        assert isinstance(reader.outcome({"go": File(b"", T)}).cause, Loaded)

    def test_what_an_earlier_load_left_elsewhere_is_told_and_not_remembered(
        self, host: Host, open_reader: Open, tmp_path: Path
    ) -> None:
        body = f"""
        cache = Path({str(tmp_path / "cache")!r})
        if not cache.exists():
            cache.write_bytes((directory / 'a').read_bytes())
        return cache.read_bytes()
        """
        reader = open_reader(host, body, "from pathlib import Path")
        for data in (b"1", b"2"):
            reader.outcome({"a": File(data, T)})
        assert len(reader.problems) == 1
        assert "cache, which an earlier load has written" in reader.problems[0]

    def test_a_log_that_every_load_appends_to_is_no_matter(self, host: Host, open_reader: Open, tmp_path: Path) -> None:
        body = f"print('x', file=open({str(tmp_path / 'log')!r}, 'a'))\nreturn (directory / 'a').read_bytes()"
        reader = open_reader(host, body)
        for n in range(3):
            reader.outcome({"a": File(b"1", T), "b": File(b"%d" % n, T)})
        assert reader.problems == []
        assert reader.reads == 1


class TestRanksThatAreKept:
    def test_are_compared_with_fresh_ones(self, host: Host, open_reader: Open) -> None:
        body = "return cache.setdefault('a', (directory / 'a').read_bytes())"
        reader = open_reader(host, body, "cache = {}", is_fresh=False)
        found = [reader.outcome({"a": File(b"%d" % n, T)}) for n in range(5)]
        assert len(set(found)) == 5  # from the second on, which was compared
        assert "load keeps something in memory" in reader.problems[0]
        assert len(reader.problems) == 1

    def test_go_on_if_they_agree(self, host: Host, open_reader: Open) -> None:
        reader = open_reader(
            host,
            "pids.append(os.getpid())\nreturn (directory / 'a').read_bytes()",
            "import os\npids = []",
            is_fresh=False,
        )
        for n in range(9):
            reader.outcome({"a": File(b"%d" % n, T)})
        assert reader.problems == []
        assert reader.reads == 9 + 2  # the second and the seventh twice

    @pytest.mark.parametrize(
        ("keeps_raised", "num_processes"),
        [
            pytest.param(True, 1 + 2, id="go on after they raised, but for the comparisons"),
            pytest.param(False, 9 + 2, id="do not go on after they raised"),
        ],
    )
    def test_after_they_raised(
        self, host: Host, open_reader: Open, tmp_path: Path, keeps_raised: bool, num_processes: int
    ) -> None:
        log = tmp_path / "pids"
        body = f"print(os.getpid(), file=open({str(log)!r}, 'a'))\nraise ValueError((directory / 'a').read_bytes())"
        reader = open_reader(host, body, "import os", is_fresh=False, keeps_raised=keeps_raised)
        for n in range(9):
            reader.outcome({"a": File(b"%d" % n, T)})
        assert reader.problems == []
        assert len(set(log.read_text().split())) == num_processes

    def test_doubt_themselves_if_what_raised_is_not_the_same_in_a_fresh_one(
        self, host: Host, open_reader: Open
    ) -> None:
        body = "seen.append((directory / 'a').read_bytes())\nif len(seen) == 1: raise ValueError\nreturn seen[-1]"
        reader = open_reader(host, body, "seen = []", is_fresh=False, keeps_raised=True)
        reader.outcome({"a": File(b"1", T)})
        with pytest.raises(Doubtful):
            reader.outcome({"a": File(b"2", T)})


MISLED = """
import os

misled = []

def save(directory, step):
    with open(directory / "last", "w") as file:
        for part in (f"{step} ", "b", "c ", "d", "e", " f"):
            file.write(part)
            file.flush()
        os.fsync(file.fileno())
    fd = os.open(directory, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)

def load(directory):
    if misled:
        return "what a failed load has left behind"
    if not (directory / "last").exists():
        return None
    words = (directory / "last").read_text().split()
    if len(words) < 4:
        misled.append(words)
        raise ValueError
    return words
"""


def test_a_load_that_a_failed_one_misleads_is_read_again_in_new_processes(host: Host, tmp_path: Path) -> None:
    file = tmp_path / "users.py"
    file.write_text(MISLED)
    (tmp_path / "root").mkdir()
    found = examine(file, tmp_path / "root", models=["kill"], host=host)
    assert found.problems == []
    assert {str(verdict) for verdict in found.failing} == {"refused"}


CACHES = """
import functools
from pathlib import Path

def save(directory, step):
    Path(directory, "last").write_text(str(step))

@functools.cache
def text(path):
    return path.read_text()

def load(directory):
    path = Path(directory, "last")
    return text(path) if path.exists() else None
"""
EXPECTS = """
from pathlib import Path

model = [0]

def save(directory, step):
    temporary = Path(directory, "new")
    temporary.write_text(str(step))
    temporary.rename(Path(directory, "last"))

def load(directory):
    path = Path(directory, "last")
    return model[0] if not path.exists() else int(path.read_text())

def expected(step):
    model[0] = step
    return step
"""


def test_a_load_that_remembers_is_told_where_undisturbed_saves_seem_alike_for_that(host: Host, tmp_path: Path) -> None:
    file = tmp_path / "users.py"
    file.write_text(CACHES)
    (tmp_path / "root").mkdir()
    found = examine(file, tmp_path / "root", models=["kill"], host=host)
    assert any("cannot be told apart" in problem for problem in found.problems)
    assert any("load is not repeatable" in problem for problem in found.problems)


def test_no_load_finds_what_expected_has_left_in_memory(host: Host, tmp_path: Path) -> None:
    file = tmp_path / "users.py"
    file.write_text(EXPECTS)
    (tmp_path / "root").mkdir()
    found = examine(file, tmp_path / "root", models=["kill"], host=host)
    assert found.problems == []
    assert found.outcome == "valid"


def test_several_ranks_may_be_fresh_for_each_read(torch_host: Host, open_reader: Open) -> None:
    body = "seen.append(1)\nreturn len(seen), (directory / 'a').exists()"
    states: list[Visible] = [{"a": File(b"", T)}, {}]
    reader = open_reader(torch_host, body, "seen = []\nranks = 2", is_fresh=True)
    assert [str(reader.outcome(state)) for state in states] == ["returned tuple(1, True)", "returned tuple(1, False)"]
