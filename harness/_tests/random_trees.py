"""Random states: a few names, so that they meet, with links, dots and times that matter."""

from __future__ import annotations

import random

from harness.crashstates.tree import Directory, File, Link, Visible

_T = 1_700_000_000.0
NAMES = ("a", "b", "step-1", "step-2", "latest")


def random_visible(rng: random.Random, *, with_links: bool = True, root: str = "/nowhere") -> Visible:
    """A state of up to some 20 entries, in the order of ``Tree.visible``."""
    visible: Visible = {}
    _fill(rng, "", visible, 0, with_links, root)
    return visible


def near_visible(rng: random.Random, *, root: str = "/nowhere") -> Visible:
    """Two checkpoints, a link to one, two loose files, and one or two changes: much as a crash leaves them."""
    visible: Visible = {"a": File(b"one", _T), "b": File(b"two", _T + 1), "latest": Link("step-1")}
    for number in (1, 2):
        data = (b"one", b"two")[number - 1]
        visible |= {f"step-{number}": Directory(), **{f"step-{number}/{n}": File(data, _T + number) for n in "ab"}}
    for _ in range(rng.randint(1, 2)):
        path = rng.choice(list(visible))
        below = [other for other in visible if other.startswith(f"{path}/")]
        change = rng.choice(("remove", "bytes", "bytes", "time", "kind", "link", "link"))
        if change == "remove" or (below and change != "link"):
            for gone in (path, *below)[rng.randint(0, 1) if below else 0 :]:
                del visible[gone]
        elif change == "link":
            target = rng.choice(("step-1", "step-2", "./step-1", f"{root}/step-2", "nowhere"))
            visible["latest"] = Link(target)
        elif change == "kind":
            visible[path] = Directory()
        else:
            time_s = _T + rng.randint(0, 4)
            visible[path] = File(rng.choice((b"one", b"two", b"xyz", b"")) if change == "bytes" else b"one", time_s)
    return dict(sorted(visible.items(), key=lambda item: item[0].split("/")))


def _fill(rng: random.Random, prefix: str, visible: Visible, depth: int, with_links: bool, root: str) -> None:
    for name in sorted(rng.sample(NAMES, rng.randint(0, 4))):
        path = prefix + name
        kind = rng.random()
        if kind < 0.4 and depth < 2:
            visible[path] = Directory()
            _fill(rng, f"{path}/", visible, depth + 1, with_links, root)
        elif kind < 0.6 and with_links:
            visible[path] = Link(random_path(rng) if rng.random() < 0.7 else f"{root}/{random_path(rng)}")
        else:
            data = bytes(rng.choice((b"", b"one", b"two", b"three")))
            visible[path] = File(data, _T + rng.randint(0, 3))


def random_path(rng: random.Random) -> str:
    """A path through such a state, perhaps by way of dots."""
    names = [rng.choice((*NAMES, *NAMES, "..", ".", "")) for _ in range(rng.randint(1, 3))]
    return "/".join(names) or "."
