"""States that are had and looked at while ranks load an earlier one."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness._tests.crash_readers import Open
from harness._tests.random_trees import random_visible
from harness.crashstates.ranks.session import Host
from harness.crashstates.read import reading
from harness.crashstates.record.tracing import why_unavailable
from harness.crashstates.tree import File, Visible

pytestmark = pytest.mark.skipif(bool(why := why_unavailable()), reason=str(why))

T = 1_700_000_000.0
NUM_STATES = 36
READERS = {
    "that walks": "return sorted((d, sorted(a), sorted(b)) for d, a, b in os.walk(directory))",
    "that takes the newest": """
        found = [p for p in directory.iterdir() if not p.is_symlink()]
        return max(found, key=lambda p: (p.stat().st_mtime, p.name)).name if found else None
        """,
}

WAITS = """
while not os.path.exists({go!r}):
    time.sleep(0.001)
return os.listdir(directory)
"""


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    with Host() as host:
        yield host


class TestSeveralStates:
    """``outcomes`` tells what ``outcome`` would of each."""

    @pytest.mark.parametrize("body", READERS.values(), ids=READERS)
    def test_are_told_in_their_order(self, host: Host, open_reader: Open, body: str) -> None:
        draw = random.Random(7)
        states = [random_visible(draw) for _ in range(NUM_STATES)] * 2
        prelude = "import os\nfrom pathlib import Path"
        reader, other = (open_reader(host, body, prelude, is_fresh=False) for _ in range(2))
        found = list(reader.outcomes(enumerate(states), lambda item: item[1]))
        assert [number for (number, _), _ in found] == list(range(len(states)))
        assert [outcome for _, outcome in found] == [other.outcome(state) for state in states]
        assert reader.answered == other.answered
        assert reader.reads - other.reads in (0, 1)  # the last is compared

    def test_are_had_while_ranks_load(self, host: Host, open_reader: Open, tmp_path: Path) -> None:
        """The load of the first waits for what is done when the third is had."""
        go = tmp_path / "go"

        def states() -> Iterator[Visible]:
            for data in (b"1", b"2"):
                yield {"a": File(data, T)}
            go.touch()
            yield {}

        reader = open_reader(host, WAITS.format(go=str(go)), "import os, time", deadline_s=10.0)
        assert all(outcome.has_returned for _, outcome in reader.outcomes(states(), lambda state: state))

    def test_are_begun_by_whoever_takes_long_to_have_the_next(
        self, host: Host, open_reader: Open, tmp_path: Path
    ) -> None:
        """The third is had only once the load of the second has begun."""
        begun = tmp_path / "begun"
        body = f"if (directory / 'second').exists(): open({str(begun)!r}, 'w').close()"

        def states() -> Iterator[Visible]:
            yield {}
            yield {"second": File(b"", T)}
            until_s = time.monotonic() + 20
            while not begun.exists() and time.monotonic() < until_s:
                reader.look()
                time.sleep(0.001)
            assert begun.exists()
            yield {"third": File(b"", T)}

        reader = open_reader(host, body, is_fresh=False)
        assert all(outcome.has_returned for _, outcome in reader.outcomes(states(), lambda state: state))

    def test_that_were_looked_at_before_ranks_were_found_to_remember_are_read_again(
        self, host: Host, open_reader: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """From their third load on ranks are wrong, which is seen at the next comparison: that of the seventh state."""
        monkeypatch.setattr(reading, "_MOST_AHEAD", 1_000_000)  # else it stops before that load has begun
        begun, go = tmp_path / "begun", tmp_path / "go"
        body = f"""
        seen.append((directory / 'a').read_bytes())
        if seen[-1] == b'6':
            open({str(begun)!r}, 'w').close()
            while not os.path.exists({str(go)!r}):
                time.sleep(0.001)
        return seen[-1] if len(seen) < 3 else 'remembered'
        """
        states: list[Visible] = [{"a": File(b"%d" % n, T)} for n in range(7)]

        def had() -> Iterator[Visible]:
            yield from states
            while not begun.exists():
                yield states[0]
            yield states[4]
            go.touch()

        reader = open_reader(host, body, "import os, time\nseen = []", is_fresh=False)
        found = [str(outcome) for _, outcome in reader.outcomes(had(), lambda state: state)]
        assert "'remembered'" in found[4]
        assert found[-1] == "returned b'4'"
        assert len(reader.problems) == 1

    def test_end_with_a_comparison(self, host: Host, open_reader: Open) -> None:
        """From their third load on ranks are wrong, and no other comparison was due by then."""
        body = "seen.append((directory / 'a').read_bytes())\nreturn seen[-1] if len(seen) < 3 else 'remembered'"
        states: list[Visible] = [{"a": File(b"%d" % n, T)} for n in range(4)]
        reader = open_reader(host, body, "seen = []", is_fresh=False)
        assert len(list(reader.outcomes(states, lambda state: state))) == len(states)
        assert len(reader.problems) == 1
        assert "'remembered' after other loads, and returned b'3' in a process of its own" in reader.problems[0]
