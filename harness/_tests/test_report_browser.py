"""The pages in a real browser: Chromium, without a screen. Skipped where it or playwright is not installed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

from harness._tests.histories import run
from harness._tests.stored_runs import killed_and_recovered, write_judged
from harness._tests.test_report_page import HOSTILE
from harness.faults import At
from harness.faults.kill import Kill
from harness.report.interval import daly
from harness.report.page import write_report_page
from harness.report.words import duration
from harness.wire import Kind

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
KILL = Kill(kind="kill", rank=1, at=At(step=8, phase="backward"))
WIDTHS = (320, 1400)
COLOURS_DRAWN = """() => {
  const pixels = brush.getImageData(0, 0, canvas.width, canvas.height).data, seen = new Set();
  for (let i = 0; i < pixels.length; i += 4) seen.add([pixels[i], pixels[i + 1], pixels[i + 2]].join());
  return [...seen];
}"""
COLOURS_WANTED = """() => [theme.phases[3], theme.phases[4], theme.failed].map((colour) => {
  brush.fillStyle = colour; // reads back as #rrggbb
  return [1, 3, 5].map((i) => parseInt(brush.fillStyle.slice(i, i + 2), 16)).join();
})"""
CONTRAST = """(selector) => {
  const parse = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const linear = (part) => part <= .03928 ? part / 12.92 : ((part + .055) / 1.055) ** 2.4;
  function light(colour) {
    const [red, green, blue] = parse(colour).map((part) => linear(part / 255));
    return .2126 * red + .7152 * green + .0722 * blue;
  }
  const element = document.querySelector(selector);
  let behind = element;
  while (behind && (parse(getComputedStyle(behind).backgroundColor)[3] ?? 1) === 0) behind = behind.parentElement;
  const one = light(getComputedStyle(element).color);
  const two = light(getComputedStyle(behind || document.body).backgroundColor);
  return (Math.max(one, two) + .05) / (Math.min(one, two) + .05);
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (pip install playwright)")
    if CHROMIUM is None:
        pytest.skip("chromium is not installed (apt-get install chromium)")
    with api.sync_playwright() as started:
        flags = ["--no-sandbox"] if os.getuid() == 0 else []
        opened = started.chromium.launch(executable_path=CHROMIUM, args=flags)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A session's page, and that of a run that holds hostile text."""
    session = tmp_path_factory.mktemp("session")
    story = killed_and_recovered(run(ranks=3, faults=[KILL], title=HOSTILE, scenario_file=f"/x/{HOSTILE}.toml"))
    story.edit(Kind.EXCEPTION, data={"message": HOSTILE * 20, "type": HOSTILE})
    story.edit(Kind.UPDATE, rank=2, step=7, restart=1, data={"params": "others"})
    write_judged(story.history(), session / "run")
    return {"session": write_report_page(session), "run": session / "run" / "report.html"}


def opened(
    browser: Browser, path: Path, width: int = 1400, scheme: Literal["light", "dark"] = "light"
) -> tuple[Page, list[str]]:
    """The page, and what went wrong in it: errors, messages, requests that are no file of its own."""
    page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
    trouble: list[str] = []
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.on("console", lambda message: trouble.append(message.text))
    page.on("dialog", lambda dialog: trouble.append(f"dialog: {dialog.message}"))
    page.on("request", lambda request: None if request.url == path.as_uri() else trouble.append(request.url))
    page.goto(path.as_uri())
    return page, [line for line in trouble if line != "data:,"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("which", ["run", "session"])
def test_a_page_opens_without_error_request_or_sideways_scrolling(
    which: str, width: int, scheme: Literal["light", "dark"], browser: Browser, pages: dict[str, Path]
) -> None:
    page, trouble = opened(browser, pages[which], width, scheme)
    page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    assert trouble == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.close()


def test_light_and_dark_both_have_a_readable_contrast(browser: Browser, pages: dict[str, Path]) -> None:
    for scheme in ("light", "dark"):
        page, _ = opened(browser, pages["run"], scheme=scheme)
        for selector in ("h1", ".title", ".badge.failed", ".hint", ".legend", ".path"):
            assert _contrast(page, selector) >= 4.5, (scheme, selector)  # WCAG 2, level AA
        page.close()


def test_everything_can_be_done_with_the_keyboard(browser: Browser, pages: dict[str, Path]) -> None:
    page, _ = opened(browser, pages["run"])
    readout = page.locator("#readout")
    before = readout.inner_text()
    page.focus("#timeline")
    page.keyboard.press("n")
    assert "launch" in readout.inner_text() != before
    page.keyboard.press("ArrowDown")
    assert "rank 1" in readout.inner_text()
    drawn = page.evaluate("document.documentElement.dataset.drawn")
    page.keyboard.press("+")
    page.wait_for_function(f"document.documentElement.dataset.drawn > {drawn}")
    page.focus(".guarantees summary")
    was_open = page.evaluate("document.activeElement.parentElement.open")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.parentElement.open") is not was_open
    out_of_reach = "[...document.querySelectorAll('button, a, input, summary, canvas')].filter(e => e.tabIndex < 0)"
    assert page.evaluate(f"{out_of_reach}.length") == 0
    page.close()


def test_the_first_deviation_is_one_click_away(browser: Browser, pages: dict[str, Path]) -> None:
    page, _ = opened(browser, pages["run"])
    page.click(".toolbar .deviation")
    said = page.locator("#readout").inner_text()
    assert "step 7" in said
    assert "rank 2" in said
    assert page.evaluate("view[1] - view[0] < whole[1] - whole[0]")
    page.close()


def test_the_picture_has_the_phases_and_the_fault(browser: Browser, pages: dict[str, Path]) -> None:
    page, _ = opened(browser, pages["run"])
    colours = page.evaluate(COLOURS_DRAWN)
    wanted = page.evaluate(COLOURS_WANTED)
    assert set(wanted) <= set(colours)
    page.close()


def test_the_interval_follows_the_figures_that_are_put_in(browser: Browser, pages: dict[str, Path]) -> None:
    page, _ = opened(browser, pages["session"])
    for name, value in (("save_s", "60"), ("recovery_s", "300"), ("mtbf_h", "24")):
        page.fill(f"#{name}", value)
    assert duration(daly(60, 86_400)) in page.locator("#daly").inner_text()
    page.fill("#save_s", "0")
    assert "must be above 0" in page.locator("#daly").inner_text()
    page.close()


def test_the_command_can_be_copied(browser: Browser, pages: dict[str, Path]) -> None:
    page, _ = opened(browser, pages["run"])
    page.locator("button.copy").first.click()
    page.wait_for_function("document.querySelector('button.copy').textContent !== 'Copy'")
    page.close()


def _contrast(page: Page, selector: str) -> float:
    """The ratio of WCAG 2 between an element's text and what lies behind it."""
    found: Any = page.evaluate(CONTRAST, selector)
    return float(found)
