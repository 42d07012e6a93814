"""Source lines, as a person would type them."""

from __future__ import annotations

from pathlib import Path


def short(site: str) -> str:
    """``file:line`` with the path from the working directory on, if it is below that."""
    path = Path(site)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else site
