"""Values of others as they stand in a message: short, on one line, and with every quote closed that is opened."""

from __future__ import annotations

import re
from typing import Any

MAX_CHARS = 80


def quoted(value: Any, most: int = MAX_CHARS) -> str:
    """``repr`` of it, of ``most`` characters at most, and one for a quote."""
    return cut(ascii(value), most)


def cut(text: str, most: int) -> str:
    """A ``repr`` or JSON text that may be too long: what is left out is said by ``...``."""
    if len(text) <= most:
        return text
    kept = text[: most - 3].rstrip("\\")
    quote = ""
    for found in re.finditer(r"\\.|['\"]", kept):
        if found[0] == quote:
            quote = ""
        elif not quote and found[0] in "'\"":
            quote = found[0]
    return f"{kept}...{quote}"
