"""A user's file in processes of its own: what may be in it, what comes back of it, and that nothing is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from harness.crashstates.ranks.outcome import Died, Hung, Loaded, Outcome, Raised, Waiting
from harness.crashstates.ranks.session import Host, SaveFailedError, Session
from harness.errors import LaunchError, SaverError

GOOD = """
def save(directory, step):
    (directory / "step").write_text(str(step))

def load(directory):
    path = directory / "step"
    return int(path.read_text()) if path.exists() else None
"""

Write = Callable[[str], Path]


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    with Host() as host:
        yield host


@pytest.fixture(scope="module")
def torch_host() -> Iterator[Host]:
    with Host(["torch.distributed.nn", "torch._dynamo"]) as host:
        yield host


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(text: str) -> Path:
        path = tmp_path / "users.py"
        path.write_text(textwrap.dedent(text))
        return path

    return write


def load_of(body: str, prelude: str = "") -> str:
    """A file whose load has this body."""
    return f"{prelude}\ndef save(directory, step): pass\ndef load(directory):\n{textwrap.indent(body, '    ')}\n"


def one_load(file: Path, host: Host, deadline_s: float = 20.0) -> Outcome:
    with Session(file, host=host) as session, session.start_readers() as readers:
        return readers.load(file.parent, deadline_s)


def gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


UNFIT = {
    "no save": ("def load(d): ...", ["has no save", "save(directory, step)"]),
    "no load": ("def save(d, s): ...", ["has no load", "load(directory)"]),
    "a save that is no function": ("save = 3\ndef load(d): ...", ["save is a int"]),
    "a save without a step": ("def save(d): ...\ndef load(d): ...", ["save(d) cannot be called so"]),
    "a load that wants more": ("def save(d, s): ...\ndef load(d, x): ...", ["load(d, x) cannot be called so"]),
    "an async save": ("async def save(d, s): ...\ndef load(d): ...", ["coroutine", "asyncio.run"]),
    "an expected without a step": (GOOD + "def expected(): ...", ["expected() cannot be called so"]),
    "no ranks": (GOOD + "ranks = 0", ["ranks = 0", "from 1 to 64"]),
    "ranks that are no number": (GOOD + "ranks = True", ["ranks = True"]),
    "steps that go back": (GOOD + "steps = (2, 1)", ["steps = (2, 1)", "ascending"]),
    "no steps": (GOOD + "steps = ()", ["steps = ()", "at least one"]),
    "a step 0, which stands for no save at all": (GOOD + "steps = (0, 1)", ["steps = (0, 1)", "from 1"]),
    "steps that are no numbers": (GOOD + "steps = 'ab'", ["steps = 'ab'"]),
    "an import that fails": ("import nothing_of_the_kind", ["line 1", "No module named 'nothing_of_the_kind'"]),
    "a syntax error": ("def save(:", ["SyntaxError", "line 1"]),
    "an exit": ("import sys\nsys.exit('no licence')", ["SystemExit", "no licence", "line 2"]),
    "a thread": (
        GOOD + "import threading\nthreading.Thread(target=threading.Event().wait, name='writer', daemon=True).start()",
        ["starts threads while it is imported (writer)", "in save and load"],
    ),
    "a crash": (
        "import os, signal\nprint('going')\nos.kill(os.getpid(), signal.SIGKILL)",
        ["ended (SIGKILL) while it was imported", "going"],
    ),
}


class TestTheFile:
    def test_has_one_rank_and_three_steps_unless_it_says_otherwise(self, write: Write, host: Host) -> None:
        with Session(write(GOOD), host=host) as session:
            assert (session.ranks, session.steps, session.has_expected) == (1, (1, 2, 3), False)

    def test_says_what_it_wants(self, write: Write, host: Host) -> None:
        with Session(write(GOOD + "steps = [10, 20]\ndef expected(step): return step\n"), host=host) as session:
            assert (session.steps, session.has_expected) == ((10, 20), True)
            with session.start_readers() as readers:
                assert readers.expected(20).ranks == (Loaded(readers.expected(20).ranks[0].digest),)  # type: ignore[union-attr]
                assert readers.expected(10) != readers.expected(20)

    def test_finds_its_neighbours_and_is_imported_once(self, write: Write, host: Host, tmp_path: Path) -> None:
        (tmp_path / "neighbour.py").write_text("import os\npid = os.getpid()\n")
        text = load_of("return neighbour.pid", "import neighbour")
        with Session(write(text), host=host) as session, session.start_readers() as readers:
            assert readers.load(tmp_path) == readers.load(tmp_path)

    @pytest.mark.parametrize(("text", "told"), UNFIT.values(), ids=UNFIT)
    def test_is_refused_with_the_place_and_the_cure(self, write: Write, host: Host, text: str, told: list[str]) -> None:
        with pytest.raises(SaverError) as refused:
            Session(write(text), host=host)
        assert "users.py" in str(refused.value)
        for part in told:
            assert part in str(refused.value)
        assert "_bootstrap" not in str(refused.value)

    def test_must_be_there(self, tmp_path: Path, host: Host) -> None:
        with pytest.raises(SaverError, match=r"absent\.py: there is no such file"):
            Session(tmp_path / "absent.py", host=host)

    def test_may_not_make_a_process_group_while_it_is_imported(self, write: Write, torch_host: Host) -> None:
        text = (
            "import torch.distributed as d\nd.init_process_group('gloo', store=d.HashStore(), rank=0, world_size=1)\n"
        )
        with pytest.raises(SaverError, match="makes a process group while it is imported"):
            Session(write(text + GOOD), host=torch_host)

    def test_is_told_from_another_of_the_same_name(self, write: Write, host: Host) -> None:
        first = one_load(write(load_of("return 1")), host)
        assert one_load(write(load_of("return 2")), host) != first


class TestSavers:
    def test_save_each_step(self, write: Write, host: Host, tmp_path: Path) -> None:
        with Session(write(GOOD), host=host) as session, session.start_savers() as savers:
            for step in session.steps:
                savers.save(step, tmp_path)
                assert (tmp_path / "step").read_text() == str(step)
            (pid,) = savers.pids
            assert not gone(pid)
            savers.close()
            assert gone(pid)

    def test_a_save_that_raises_is_told_with_its_line_and_output(
        self, write: Write, host: Host, tmp_path: Path
    ) -> None:
        text = "def load(d): ...\ndef save(d, s):\n    print('writing', s)\n    (d / 'no' / 'dir').write_text('')\n"
        with Session(write(text), host=host) as session:
            savers = session.start_savers()
            with pytest.raises(SaveFailedError) as failed:
                savers.save(7, tmp_path)
            for part in ("step 7", "rank 0", "FileNotFoundError", "users.py:4", "writing 7"):
                assert part in str(failed.value)
            (raised,) = failed.value.outcome.ranks
            assert isinstance(raised, Raised)
            assert gone(savers.pids[0])
            with pytest.raises(SaverError, match="start others"):
                savers.save(8, tmp_path)
            assert session.start_savers().pids != savers.pids

    def test_a_save_that_does_not_return_is_ended_and_says_where_it_was(
        self, write: Write, host: Host, tmp_path: Path
    ) -> None:
        text = "import time\ndef load(d): ...\ndef save(d, s):\n    time.sleep(1000)\n"
        with Session(write(text), host=host) as session:
            with pytest.raises(SaveFailedError, match=r"did not return within 0\.3 s") as failed:
                session.start_savers().save(1, tmp_path, deadline_s=0.3)
            assert 'users.py", line 4 in save' in str(failed.value)

    def test_a_save_that_kills_its_process_is_told(self, write: Write, host: Host, tmp_path: Path) -> None:
        text = "import os\ndef load(d): ...\ndef save(d, s):\n    print('last words')\n    os.abort()\n"
        with Session(write(text), host=host) as session:
            with pytest.raises(SaveFailedError, match="SIGABRT") as failed:
                session.start_savers().save(1, tmp_path)
            assert "last words" in str(failed.value)
            assert 'users.py", line 5 in save' in str(failed.value)

    def test_ranks_save_together(self, write: Write, torch_host: Host, tmp_path: Path) -> None:
        text = """
        import os, torch, torch.distributed as dist
        ranks = 2
        def save(directory, step):
            total = torch.tensor([step + dist.get_rank()])
            dist.all_reduce(total)
            (directory / os.environ["RANK"]).write_text(f"{total.item()} of {os.environ['WORLD_SIZE']}")
        def load(directory):
            return None
        """
        with Session(write(text), host=torch_host) as session, session.start_savers() as savers:
            savers.save(10, tmp_path)
            assert len(set(savers.pids)) == 2
        assert [(tmp_path / rank).read_text() for rank in "01"] == ["21 of 2", "21 of 2"]


OUTCOMES = {
    "nothing": ("return None", Loaded("nothing")),
    "an error": ("return {}['model']", Raised("KeyError", "'model'", "users.py:4")),
    "an error that is no Exception": ("raise GeneratorExit('x')", Raised("GeneratorExit", "x", "users.py:4")),
    "an error inside the library": ("import json; json.loads('{')", Raised("json.decoder.JSONDecodeError", "", "")),
    "an error without text": ("class E(Exception):\n    def __str__(self): return 1/0\nraise E", Raised("E", "", "")),
    "an exit": ("import sys; sys.exit(3)", Raised("SystemExit", "3", "users.py:4")),
    "what cannot be compared": ("return object()", Raised("Incomparable", "cannot be compared", "")),
    "a signal": ("import os; os.kill(os.getpid(), 11)", Died("SIGSEGV")),
    "an end": ("import os; os._exit(3)", Died("exit code 3")),
    "no return": ("import time; time.sleep(1000)", Hung(0.5)),
}
FAILING = {
    "the others wait for one that raised": ("raise ValueError('torn')", (Waiting, Raised)),
    "the others wait for one that ended": ("os._exit(1)", (Waiting, Died)),
}


class TestReaders:
    @pytest.mark.parametrize(("body", "expected"), OUTCOMES.values(), ids=OUTCOMES)
    def test_tell_what_came_of_it(self, write: Write, host: Host, body: str, expected: object) -> None:
        (found,) = one_load(write(load_of(body)), host, deadline_s=0.5).ranks
        assert type(found) is type(expected)
        match found, expected:
            case Raised(error, message, site), Raised(error_expected, message_expected, site_expected):
                assert error.endswith(error_expected)
                assert message_expected in message
                assert site.endswith(site_expected)
                assert "users.py" in site or "Incomparable" in error
            case _:
                assert found == expected

    def test_a_hang_says_where(self, write: Write, host: Host) -> None:
        (hung,) = one_load(write(load_of("import time\ntime.sleep(1000)")), host, deadline_s=0.3).ranks
        assert isinstance(hung, Hung)
        assert 'users.py", line 5 in load' in hung.stack

    def test_one_rank_is_fresh_for_each_load(self, write: Write, host: Host, tmp_path: Path) -> None:
        text = load_of("seen.append(1)\nreturn len(seen)", "seen = []")
        with Session(write(text), host=host) as session, session.start_readers() as readers:
            assert readers.load(tmp_path) == readers.load(tmp_path)

    def test_go_on_after_each_kind_of_failure(self, write: Write, host: Host, tmp_path: Path) -> None:
        text = load_of(
            "what = (directory / 'what').read_text()\n"
            "if what == 'hang': time.sleep(1000)\nif what == 'die': os.abort()\nassert what == 'go'\nreturn what",
            "import os, time",
        )
        kinds = []
        with Session(write(text), host=host) as session, session.start_readers() as readers:
            for what in ("go", "hang", "go", "die", "go", "raise", "go"):
                (tmp_path / "what").write_text(what)
                kinds.append(type(readers.load(tmp_path, 0.5).ranks[0]))
        assert kinds == [Loaded, Hung, Loaded, Died, Loaded, Raised, Loaded]

    def test_a_module_that_load_imports_is_not_imported_each_time(
        self, write: Write, host: Host, tmp_path: Path
    ) -> None:
        (tmp_path / "slow_import.py").write_text("import os\npid = os.getpid()\n")
        text = load_of("import slow_import, os\nreturn slow_import.pid == os.getpid()")
        with Session(write(text), host=host) as session, session.start_readers() as readers:
            first, second, third = (readers.load(tmp_path) for _ in range(3))
        assert first != third
        assert "True" in str(first)
        assert "False" in str(third), second

    def test_ranks_load_together(self, write: Write, torch_host: Host, tmp_path: Path) -> None:
        text = load_of(
            "each = [None, None]\ndist.all_gather_object(each, os.environ['LOCAL_RANK'])\nreturn each, dist.get_rank()",
            "import os, torch.distributed as dist\nranks = 2",
        )
        with Session(write(text), host=torch_host) as session, session.start_readers() as readers:
            outcome = readers.load(tmp_path)
            assert outcome.has_returned
            assert [rank.summary for rank in outcome.ranks if isinstance(rank, Loaded)] == [
                "tuple(list('0', '1'), 0)",
                "tuple(list('0', '1'), 1)",
            ]
            assert readers.load(tmp_path) == outcome

    @pytest.mark.parametrize(("failing", "expected"), FAILING.values(), ids=FAILING)
    def test_one_failing_rank_decides(
        self, write: Write, torch_host: Host, tmp_path: Path, failing: str, expected: tuple[type, ...]
    ) -> None:
        text = load_of(
            f"if dist.get_rank() == 1 and (directory / 'fail').exists(): {failing}\ndist.barrier()\nreturn 1",
            "import os, torch.distributed as dist\nranks = 2",
        )
        with Session(write(text), host=torch_host) as session, session.start_readers() as readers:
            assert readers.load(tmp_path).has_returned
            (tmp_path / "fail").touch()
            outcome = readers.load(tmp_path)
            # A rank that ended takes its sockets with it, so the others may hear of it themselves.
            assert type(outcome.ranks[1]) is expected[1]
            assert type(outcome.ranks[0]) in (expected[0], Raised)
            if expected[1] is Raised:
                assert outcome.cause == outcome.ranks[1]
            (tmp_path / "fail").unlink()
            assert readers.load(tmp_path).has_returned


LEAVES = {
    "a child": "p = subprocess.Popen(['sleep', '1000'])",
    "a child in a session of its own": "p = subprocess.Popen(['sleep', '1000'], start_new_session=True)",
    "a daemon": (
        "p = subprocess.Popen('sleep 1000 & echo $!', shell=True, start_new_session=True, stdout=subprocess.PIPE)\n"
        "p.pid = int(p.stdout.readline())"
    ),
}


class TestNothingIsLeft:
    @pytest.mark.parametrize("how", LEAVES)
    def test_of_what_a_load_started(self, write: Write, host: Host, tmp_path: Path, how: str) -> None:
        text = load_of(f"{LEAVES[how]}\n(directory / 'pid').write_text(str(p.pid))", "import subprocess")
        with Session(write(text), host=host) as session, session.start_readers() as readers:
            readers.load(tmp_path)
        assert gone(int((tmp_path / "pid").read_text()))

    def test_when_a_session_with_a_host_of_its_own_ends(self, write: Write) -> None:
        before = {child.pid for child in psutil.Process().children(recursive=True)}
        with Session(write(GOOD)) as session:
            session.start_savers()
            session.start_readers().prepare()
            started = {child.pid for child in psutil.Process().children(recursive=True)} - before
            assert len(started) == 5  # the host, the file, the saver, the readers' parent, the reader
        assert all(map(gone, started))

    def test_when_the_controller_is_killed(self, write: Write, tmp_path: Path) -> None:
        text = load_of(LEAVES["a daemon"] + "\n(directory / 'pid').write_text(str(p.pid))", "import subprocess")
        script = f"""
        import sys, time, psutil
        from pathlib import Path
        from harness.crashstates.ranks.session import Session
        session = Session(Path({str(write(text))!r}))
        session.start_savers()
        readers = session.start_readers()
        readers.load(Path({str(tmp_path)!r}))
        print(*[child.pid for child in psutil.Process().children(recursive=True)], flush=True)
        sys.stdin.read()
        """
        controller = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert controller.stdout is not None
        assert controller.stdin is not None
        pids = [*map(int, controller.stdout.readline().split()), int((tmp_path / "pid").read_text())]
        assert len(pids) >= 5
        processes = [psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)]
        controller.kill()
        controller.wait()
        controller.stdout.close()
        controller.stdin.close()
        _, alive = psutil.wait_procs(processes, timeout=10)
        assert not alive

    def test_of_its_files(self, write: Write) -> None:
        with Host() as host:
            with Session(write(GOOD), host=host) as session:
                session.start_readers().prepare()
            directory = host.directory
        assert not directory.exists()

    def test_a_host_that_was_killed_is_named(self, write: Write) -> None:
        host = Host()
        os.kill(host.pid, signal.SIGKILL)
        with pytest.raises(LaunchError, match="the process that imports files"):
            Session(write(GOOD), host=host)
        with pytest.raises(LaunchError):
            host.close()
        assert gone(host.pid)


def test_a_package_that_cannot_be_preloaded_is_named() -> None:
    with pytest.raises(LaunchError, match="nothing_of_the_kind cannot be imported"):
        Host(["nothing_of_the_kind"])


def test_the_controller_does_not_import_torch() -> None:
    text = "import sys, harness.crashstates.read.reading; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", text], check=False).returncode == 0
