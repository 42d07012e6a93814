"""The HTML pages as text: what they say, and that nothing a script says can act in them."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from harness._tests.histories import run
from harness._tests.stored_runs import killed_and_recovered, write_history, write_judged
from harness.faults import At
from harness.faults.kill import Kill
from harness.history import SIGTERM_HEADER
from harness.report.page import write_run_report, write_session_report
from harness.report.page.html import json_block, plain
from harness.wire import Kind, flight_path

KILL = Kill(kind="kill", rank=1, at=At(step=8, phase="backward"))
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'`{{7*7}}<!--\u202e\u2028\x07\ud800é😀"


class Parsed(HTMLParser):
    """A page's elements, and the text of each kind of element."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self._open: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._open.append(tag)
        self.texts.setdefault(tag, []).append("")

    def handle_data(self, data: str) -> None:
        if self._open:
            self.texts[self._open[-1]][-1] += data

    def handle_endtag(self, tag: str) -> None:
        if tag in self._open:
            while self._open.pop() != tag:
                pass

    def data(self) -> Any:
        return json.loads(self.texts["script"][0])


def page_of(run_dir: Path) -> str:
    return write_run_report(run_dir).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def recovered(tmp_path_factory: pytest.TempPathFactory) -> str:
    story = killed_and_recovered(run(faults=[KILL], title="a kill", scenario_file="/somewhere/kill.toml"))
    return page_of(write_judged(story.history(), tmp_path_factory.mktemp("pages") / "recovered"))


# ------------------------------------------------------------------------------------------------------ what it says


def test_the_verdict_comes_first_then_what_where_when_and_what_to_do(recovered: str) -> None:
    places = [recovered.index(f">{word}<") for word in ("Where", "When", "What to do", "Timeline", "Guarantees")]
    assert places == sorted(places)
    assert 0 < recovered.index('<h1><span class="badge') < places[0]
    assert "pytest /somewhere/kill.toml::cpu --launcher warm --chaos-seed 0" in recovered


def test_the_choice_of_the_reader_is_told_with_its_reason(recovered: str) -> None:
    text = re.sub(r"<[^>]+>|\s+", " ", recovered)
    assert "ranks 0, 1 took step-5. It is complete: it is complete." in text
    assert "The directory was empty, so ranks 0, 1 began from the start." in text


def test_what_the_reader_passed_over_is_told_with_its_reason(tmp_path: Path) -> None:
    story = run(faults=[KILL]).start(with_store=True).updates(1, 5).save().updates(6, 7)
    story.kept[7] = "temporary"
    for rank in (0, 1):
        story.begin(rank, 8)
    story.fire(1).kill(1).cut_off().start(load=5).updates(6, 12).leave()
    text = page_of(write_judged(story.history(), tmp_path / "run"))
    assert "took step-5. It is complete: it is complete. step-7 is passed over, which is temporary" in text


def test_each_guarantee_has_its_verdict_and_its_promise(recovered: str) -> None:
    assert recovered.count("The promise: ") >= 19


def test_the_last_collectives_and_stacks_of_a_hang_are_shown(tmp_path: Path) -> None:
    story = run(ranks=3).start().updates(1, 3)
    for rank in (0, 2):
        story.begin(rank, 4)
    history = story.ended_by_launcher().history(timed_out=True)
    page = page_of(write_judged(history, tmp_path / "run"))
    assert page.index("Evidence of the failed launches") < page.index(">Guarantees<")
    assert "behind: rank 1" in page
    assert "all_reduce SUM of 500 float32 at train.py:61, step 4, backward" in page
    assert page.count("Current thread 0x1 (most recent call first)") == 3


LED_TO_IT = """\
  File "/venv/harness/rank/main.py", line 61 in run
  File "/venv/site-packages/torch/distributed/run.py", line 1028 in main
  File "<frozen runpy>", line 88 in _run_code
"""
STACKS = {
    "the script and what it called": (
        """\
Thread 0x1 (most recent call first):
  File "/usr/lib/python3.11/selectors.py", line 468 in select

Current thread 0x2 (most recent call first):
  File "/work/train.py", line 33 in spin
  File "/work/train.py", line 40 in <module>
  File "<frozen runpy>", line 88 in _run_code
  File "<frozen runpy>", line 198 in _run_module_as_main
  File "/venv/harness/rank/main.py", line 90 in _run_script
""",
        "Its stacks when the launcher ended it",
        "line 40 in <module>\n  [6 frames that led to it]",
        ["torch/distributed/run.py", "frozen runpy"],
    ),
    "our own code after the script": (
        """\
Current thread 0x2 (most recent call first):
  File "/venv/harness/rank/main.py", line 223 in _sources
""",
        "Its stacks when the launcher ended it: it did not run the script just then",
        "line 223 in _sources\n  [3 frames that led to it]",
        ["torch/distributed/run.py"],
    ),
}


@pytest.mark.parametrize("name", STACKS)
def test_stacks_show_the_script_and_not_what_led_to_it(name: str, tmp_path: Path) -> None:
    stacks, title, shown, hidden = STACKS[name]
    story = run(faults=[KILL]).start().updates(1, 3)
    story.stacks[0, 0] = f"{SIGTERM_HEADER}\n{stacks}{LED_TO_IT}"
    page = Parsed(page_of(write_judged(story.history(exit_code=1), tmp_path / "run")))
    assert page.texts["h4"].count(title) == 1
    (text,) = [text for text in page.texts["pre"] if "Current thread 0x2" in text]
    assert shown in text
    assert not [part for part in hidden if part in text]


def test_torch_s_own_record_of_the_last_collectives_is_shown_where_there_is_one(tmp_path: Path) -> None:
    story = run(ranks=2).start().updates(1, 3).begin(0, 4)
    run_dir = write_history(story.history(timed_out=True), tmp_path / "run")
    entries = [
        {
            "profiling_name": "gloo:all_reduce",
            "process_group": ["0", "default_pg"],
            "collective_seq_id": number,
            "retired": number < 11,
            "input_sizes": [[10]],
            "input_dtypes": ["Float"],
        }
        for number in range(1, 12)
    ]
    flight_path(run_dir, 0, 0).write_text(json.dumps({"entries": entries}))
    page = Parsed(page_of(run_dir))
    assert page.texts["h4"].count("Its last collectives by torch's own flight record") == 1
    (text,) = [text for text in page.texts["pre"] if "of group 0" in text]
    assert text.splitlines()[0] == "all_reduce, number 4 of group 0: Float [10], done"
    assert text.splitlines()[-1] == "all_reduce, number 11 of group 0: Float [10], not done"


def test_a_rank_without_evidence_is_said_to_have_none(tmp_path: Path) -> None:
    story = run(faults=[KILL]).start()
    story.drop(Kind.COLLECTIVE, rank=1)
    page = page_of(write_judged(story.kill(1).history(exit_code=1), tmp_path / "run"))
    assert "It left no evidence: no collective, no stack, nothing on stderr." in page


def test_a_run_that_was_never_judged_says_so_and_how_to(tmp_path: Path) -> None:
    page = page_of(write_history(run().start().updates(1, 3).leave().history(), tmp_path / "run"))
    assert "this run has not been judged" in page
    assert "python -m harness recheck" in page


def test_what_the_script_draws_is_in_the_page_with_its_steps(recovered: str) -> None:
    data = Parsed(recovered).data()
    assert [(p["rank"], p["restart"], p["replayed"]) for p in data["processes"]] == [
        (0, 0, None),
        (0, 1, [6, 7]),
        (1, 0, None),
        (1, 1, [6, 7]),
    ]
    assert [moment["kind"] for moment in data["moments"]].count("fault") == 1
    assert data["bands"][0]["is_recovered"]


# ---------------------------------------------------------------------------------------------------- hostile text


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The pages of a session whose only run holds hostile text wherever a script or a user can write it."""
    session = tmp_path_factory.mktemp("hostile")
    more: dict[str, Any] = {"title": HOSTILE, "workload": HOSTILE, "scenario_file": f"/x/{HOSTILE}.toml"}
    more |= {"args": (HOSTILE,), "env": {HOSTILE: HOSTILE}, "made_with": {HOSTILE: HOSTILE}}
    story = run(faults=[KILL], **more)
    killed_and_recovered(story)
    story.edit(Kind.EXCEPTION, data={"message": HOSTILE, "type": HOSTILE, "site": HOSTILE})
    story.edit(Kind.COLLECTIVE, restart=0, data={"op": HOSTILE, "site": HOSTILE, "dtype": HOSTILE})
    story.edit(Kind.FAULT, data={"effect": HOSTILE})
    entry = {"name": HOSTILE, "step": 5, "verdict": HOSTILE, "reason": HOSTILE, "manifest": HOSTILE}
    story.edit(Kind.INVENTORY, data={"entries": [entry]})
    story.edit(Kind.LOAD, restart=1, data={"path": f"/run/{HOSTILE.replace('/', '')}", "candidates": [entry]})
    story.stacks[0, 0] = HOSTILE
    run_dir = write_judged(story.history(), session / "run")
    (run_dir / "rank-0" / "stderr-0.txt").write_bytes(HOSTILE.encode("utf-8", "replace") + b"\xff\xfe")
    told = {"test": HOSTILE, "result": HOSTILE, "headline": HOSTILE}
    (session / "report.json").write_text(json.dumps({"seed": HOSTILE, HOSTILE: HOSTILE, "results": [told]}))
    pages = {"run": page_of(run_dir)}
    return pages | {"session": write_session_report(session).read_text(encoding="utf-8")}


@pytest.mark.parametrize("which", ["run", "session"])
def test_hostile_text_makes_no_element_and_is_readable(which: str, hostile: dict[str, str]) -> None:
    page = Parsed(hostile[which])
    assert [attributes.get("type") for tag, attributes in page.elements if tag == "script"] == [
        "application/json",
        None,
    ]
    assert not [tag for tag, _ in page.elements if tag == "img"]
    assert not [name for _, attributes in page.elements for name in attributes if name.startswith("on")]
    assert any("<img src=x onerror=alert(1)>" in text for texts in page.texts.values() for text in texts)
    assert "49" not in page.texts["title"][0]


@pytest.mark.parametrize("which", ["run", "session"])
def test_characters_that_hide_what_a_text_says_are_shown_as_their_codes(which: str, hostile: dict[str, str]) -> None:
    assert not set(hostile[which]) & set("\u202e\u2028\x07\ud800")
    assert "\\u202e" in hostile[which]
    assert "é😀" in hostile[which]


@pytest.mark.parametrize("which", ["run", "session"])
def test_only_the_pages_own_script_may_run_and_nothing_may_be_fetched(which: str, hostile: dict[str, str]) -> None:
    page = Parsed(hostile[which])
    (policy,) = (a["content"] for t, a in page.elements if t == "meta" and a.get("http-equiv"))
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    code = re.findall(r"<script>(.*?)</script>", hostile[which], re.DOTALL)[-1]
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    links = [value for _, a in page.elements for name, value in a.items() if name in ("src", "href", "action")]
    assert all(value and re.fullmatch(r"#main|data:,|[\w.%-]+/report\.html", value) for value in links)


def test_json_in_a_script_element_cannot_end_it() -> None:
    block = json_block({"a": "</script><!--&\u2028"})
    assert not set(block) & set("<>&\u2028")
    assert json.loads(block) == {"a": "</script><!--&\u2028"}


def test_plain_text_stays_as_it_is() -> None:
    assert plain("a b\n\tc é 😀") == "a b\n\tc é 😀"
    assert plain(7) == 7


def test_what_an_object_says_of_itself_hides_nothing_either() -> None:
    class Said:
        def __str__(self) -> str:
            return "a\u202eb\ud800"

    assert plain(Said()) == "a\\u202eb\\ud800"


# --------------------------------------------------------------------------------------------------------- sessions


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = tmp_path_factory.mktemp("session")
    write_judged(killed_and_recovered(run(faults=[KILL], workload="ddp_mlp")).history(), root / "passes")
    broken = killed_and_recovered(run(faults=[KILL], workload="ddp_mlp"))
    broken.edit(Kind.UPDATE, rank=1, step=7, restart=1, data={"params": "others"})
    run_dir = write_judged(broken.history(), root / "breaks")
    write_judged(run(faults=[KILL], workload="other").start().updates(1, 12).leave().history(), root / "does-not-fire")
    write_run_report(run_dir)
    told = {"test": "scenarios/b.toml::gpu", "result": "skipped", "device": "gpu"}
    (root / "report.json").write_text(json.dumps({"seed": 7, "results": [told]}))
    return write_session_report(root).read_text(encoding="utf-8")


def test_a_session_shows_what_did_not_pass_first_and_links_to_its_page(session: str) -> None:
    assert "1 failed, 2 unknown of 4" in re.sub(r"\s+", " ", session)
    assert session.index(">breaks<") < session.index(">does-not-fire<")
    assert 'href="breaks/report.html"' in session
    assert 'href="passes/report.html"' not in session  # it has none
    assert "scenarios/b.toml::gpu" in session


def test_coverage_counts_each_kind_of_fault_in_the_phase_in_which_it_fired(session: str) -> None:
    table, other = re.findall(r'<table class="coverage">(.*?)</table>', session, re.DOTALL)
    if "backward" not in table:
        table, other = other, table
    assert re.findall(r'scope="col">(\w[\w ]*)', table) == ["fault", "backward"]
    assert set(re.findall(r'aria-label="(\d+ \w+)"', table)) & {"1 failed"}
    assert "not fired" in other


def test_detection_and_recovery_are_drawn_for_each_kind_of_fault(session: str) -> None:
    assert session.count('<circle class="detection"') > 1
    assert session.count('<circle class="recovery"') > 1
    assert "The same as a table" in session


def test_an_empty_session_says_that_nothing_is_shown(tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text('{"seed": 7, "results": []}')
    page = write_session_report(tmp_path).read_text()
    assert "badge unknown" in page
    assert "No run of this session had a fault." in page


def test_a_page_is_made_without_torch(tmp_path: Path) -> None:
    run_dir = write_judged(killed_and_recovered(run(faults=[KILL])).history(), tmp_path / "run")
    code = "import sys; from harness.__main__ import main; main(sys.argv[1:]); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code, "report", str(run_dir)], check=True, timeout=60)
