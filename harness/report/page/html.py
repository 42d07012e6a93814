"""From a template and data to one HTML file in which nothing of the data can act.

Three walls, each enough by itself: jinja2 escapes every value; characters that could hide what a text says (controls,
directions of writing) are shown as their codes; and a content security policy lets no script run but the page's own, by
its digest, and no request leave.
"""

from __future__ import annotations

import base64
import hashlib
import json
import statistics
import unicodedata
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from harness.errors import RecordError
from harness.report.words import duration

FOLDER = Path(__file__).parent
MAX_LINE_CHARS = 100
_SHOWN = "\n\t"
_HIDING = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}  # controls, formats, lone surrogates, private use, line separators


def render(template: str, data: Any = None, script: str | None = None, **values: Any) -> str:
    """The page.

    Args:
        data: JSON-able; the page's scripts find it in the element ``data``.
        script: name of its own JavaScript file in this folder, beside the one that all pages have.
    """
    css, code = _inlined("page.css"), _inlined("common.js") + (_inlined(script) if script else "")
    policy = (
        "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:; "
        f"style-src 'sha256-{_digest(css)}'; script-src 'sha256-{_digest(code)}'"
    )
    return (
        _environment()
        .get_template(template)
        .render(css=Markup(css), code=Markup(code), policy=policy, data=json_block(data), **values)
    )


def json_block(data: Any) -> Markup:
    """JSON that can stand in a script element: nothing in it can end the element or begin a comment."""
    text = json.dumps(data, separators=(",", ":"), default=str)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def plain(value: Any) -> Any:
    """Text whose every character can be seen, of any object; numbers stay as they are, and so does HTML."""
    if isinstance(value, Markup | jinja2.Undefined | int | float | None):
        return value
    text = str(value)
    if text.isascii() and text.isprintable():
        return text
    return "".join(f"\\u{ord(c):04x}" if c not in _SHOWN and unicodedata.category(c) in _HIDING else c for c in text)


def pretty(value: Any) -> str:
    """A value as text for people: a string as it is, all else as JSON, indented where it is long."""
    if isinstance(value, str):
        return value
    line = json.dumps(value, ensure_ascii=False, default=str)
    return line if len(line) <= MAX_LINE_CHARS else json.dumps(value, indent=1, ensure_ascii=False, default=str)


def write_page(path: Path, text: str) -> Path:
    """Write the page in one step; returns its path.

    Raises:
        RecordError: it cannot be written.
    """
    half = path.with_name(f"{path.name}.tmp")
    try:
        half.write_text(text, encoding="utf-8")
        half.replace(path)
    except OSError as error:
        raise RecordError(
            f"{path}: cannot be written ({error.strerror}); free some space or mend its rights"
        ) from error
    return path


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=plain,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["duration"] = duration
    environment.filters["pretty"] = pretty
    environment.filters["median"] = lambda values: statistics.median(values) if values else None
    environment.filters["percent"] = lambda share: f"{share:.2%}" if share < 0.1 else f"{share:.0%}"
    return environment


@cache
def _inlined(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
