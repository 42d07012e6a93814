"""What this machine can do, as data: each fact with what was seen and, where it is missing, what to do about it.

Facts about torch come from a child process (``harness.rank.capabilities``) and are cached, since it takes seconds to
import. All others are asked anew each time: they cost milliseconds, and a machine that was just cured must not be
called ill.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

PROBE_TIMEOUT_S = 10.0
TORCH_TIMEOUT_S = 120.0  # a cold import of torch from a slow disk
MIN_MEMORY_BYTES = 2 << 30  # two cold ranks that each import torch, and a controller
_GIB = 1 << 30


@dataclass(frozen=True)
class Capability:
    """One thing that a machine can or cannot do.

    Attributes:
        detail: what was seen: a version, a number, an error.
        cure: what needs it and how to get it; empty if it is there.
    """

    name: str
    available: bool
    detail: str
    cure: str = ""


@dataclass(frozen=True)
class TorchFacts:
    """What the child process found.

    Attributes:
        version: of the installed torch; empty if there is none.
        trouble: why the child could say nothing more; empty if it could.
        gloo_trouble: why no gloo group can be made; empty if one can.
        nccl, cuda_build: versions; empty without.
        gpus: their names, by number, whatever CUDA_VISIBLE_DEVICES says.
    """

    version: str
    trouble: str = ""
    gloo_trouble: str = ""
    nccl: str = ""
    cuda_build: str = ""
    gpus: tuple[str, ...] = ()


def torch_facts(cache_dir: Path | None) -> TorchFacts:
    """What torch can do here; kept in ``cache_dir`` until the machine, its GPUs, Python or torch change.

    Without a ``cache_dir`` the child is asked. Its failures are not kept.
    """
    try:
        version = metadata.version("torch")
    except metadata.PackageNotFoundError:
        return TorchFacts("", trouble="torch is not installed")
    nodes = sorted(path.name for path in Path("/dev").glob("nvidia[0-9]*"))
    key = [platform.node(), sys.executable, platform.python_version(), version, *nodes]
    cache = cache_dir and cache_dir / f"capabilities-{platform.node()}-torch-{version}.json"
    if cache and (cached := _load_cache(cache, key)):
        return cached
    facts = _ask_child(version)
    if cache and not facts.trouble:
        _write_cache(cache, key, facts)
    return facts


def capabilities(cache_dir: Path | None = None) -> dict[str, Capability]:
    """Every capability by name, the ones that all runs need first."""
    facts = torch_facts(cache_dir)
    found = [
        _linux(),
        *_torch(facts),
        _memory(),
        _cores(),
        _gpus(facts),
        _nccl(facts),
        _strace(),
        _ptrace(),
        _attach(),
        _namespaces(),
        _tmpfs(),
        _fuse(),
    ]
    return {capability.name: capability for capability in found}


def _load_cache(path: Path, key: list[str]) -> TorchFacts | None:
    try:
        raw = json.loads(path.read_text())
        return _facts_of(raw["facts"]) if raw["key"] == key else None
    except (OSError, ValueError, TypeError, KeyError):
        return None  # no cache, or not ours: the child knows


def _write_cache(path: Path, key: list[str], facts: TorchFacts) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=path.stem, delete=False) as file:
        json.dump({"key": key, "facts": asdict(facts)}, file, indent=1)
    Path(file.name).replace(path)  # another pytest worker never reads half a file


def _facts_of(raw: dict[str, Any]) -> TorchFacts:
    return TorchFacts(**{**raw, "gpus": tuple(raw.get("gpus", ()))})


def _ask_child(version: str) -> TorchFacts:
    environ = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    command = [sys.executable, "-m", "harness.rank.capabilities"]
    ok, output = _outcome(command, TORCH_TIMEOUT_S, environ)
    if not ok:
        return TorchFacts(version, trouble=output)
    return _facts_of({"version": version, **json.loads(output)})


def _outcome(
    command: Sequence[str], timeout_s: float = PROBE_TIMEOUT_S, environ: dict[str, str] | None = None
) -> tuple[bool, str]:
    """Whether ``command`` ended well, and the last line it wrote (of its errors, if it did not)."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, env=environ, check=False)
    except OSError as error:
        return False, f"{command[0]}: {error.strerror}"
    except subprocess.TimeoutExpired:
        return False, f"{command[0]}: no answer within {timeout_s:g} s"
    lines = (done.stdout if done.returncode == 0 else done.stderr or done.stdout).strip().splitlines()
    return done.returncode == 0, lines[-1] if lines else f"exit {done.returncode}"


def _linux() -> Capability:
    detail = f"{platform.system()} {platform.release()}"
    cure = "ranks end with the controller by prctl(PR_SET_PDEATHSIG), which only Linux has: use a Linux machine or VM"
    return Capability("linux", sys.platform == "linux", detail, "" if sys.platform == "linux" else cure)


def _torch(facts: TorchFacts) -> list[Capability]:
    if facts.trouble:
        cure = "every run needs it: pip install torch, then try python -c 'import torch'"
        return [Capability("torch", False, facts.trouble, cure), Capability("gloo", False, "no torch to ask", cure)]
    build = f"CUDA {facts.cuda_build}" if facts.cuda_build else "CPU"
    gloo_cure = "every CPU run needs it: install an official torch build; the host's own name must resolve (/etc/hosts)"
    return [
        Capability("torch", True, f"{facts.version} ({build} build)"),
        Capability("gloo", not facts.gloo_trouble, facts.gloo_trouble or "works", facts.gloo_trouble and gloo_cure),
    ]


def _gpus(facts: TorchFacts) -> Capability:
    if facts.gpus:
        return Capability("gpus", True, f"{len(facts.gpus)}: {', '.join(sorted(set(facts.gpus)))}")
    detail = "none found" if facts.cuda_build else "none found (torch is a CPU build)"
    return Capability("gpus", False, detail, "pytest -m gpu needs one for each rank, with a CUDA build of torch")


def _nccl(facts: TorchFacts) -> Capability:
    cure = "pytest -m gpu needs it: a CUDA build of torch brings it, and it shows once a GPU is there"
    return Capability("nccl", bool(facts.nccl), facts.nccl or "not usable", "" if facts.nccl else cure)


def _cores() -> Capability:
    cores = float(len(os.sched_getaffinity(0)))
    if quota := _cgroup_quota():
        cores = min(cores, quota)
    cure = "deadlines are set for two cores: raise deadline_s and collective_timeout_s in slow scenarios"
    return Capability("cores", cores >= 2, f"{cores:g}", "" if cores >= 2 else cure)


def _cgroup_quota() -> float | None:
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
    except (OSError, ValueError):
        return None
    return None if quota == "max" else int(quota) / int(period)


def _memory() -> Capability:
    total_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with suppress(OSError, ValueError):  # no cgroup v2, or "max": no limit
        total_bytes = min(total_bytes, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    enough = total_bytes >= MIN_MEMORY_BYTES
    cure = f"every run needs about {MIN_MEMORY_BYTES / _GIB:g} GiB: raise the container's limit"
    return Capability("memory", enough, f"{total_bytes / _GIB:.1f} GiB", "" if enough else cure)


def _strace() -> Capability:
    cure = "exact crash points of foreign checkpoint code need it: install the package strace"
    if not shutil.which("strace"):
        return Capability("strace", False, "not installed", cure)
    # Tracing may be forbidden although the program is there, and an old one cannot inject.
    inject = ["strace", "-qq", "-o", os.devnull, "-e", "trace=getpid", "-e", "inject=getpid:error=EIO", "true"]
    works, problem = _outcome(inject)
    version = _outcome(["sh", "-c", "strace -V | head -n 1"])[1].rpartition(" ")[2]
    cure = "tracing is forbidden here: run the container with --cap-add=SYS_PTRACE"
    return Capability("strace", works, f"{version}, can inject" if works else problem, "" if works else cure)


def _ptrace() -> Capability:
    traceme = "import ctypes, sys; sys.exit(bool(ctypes.CDLL(None).ptrace(0, 0, 0, 0)))"
    works, _ = _outcome([sys.executable, "-c", traceme])
    cure = "strace and debuggers need it: run the container with --cap-add=SYS_PTRACE"
    return Capability("ptrace", works, "allowed" if works else "forbidden", "" if works else cure)


def _attach() -> Capability:
    """Tracing one's own child is one thing, and a process that runs already another (Yama, containers)."""
    works, problem = _outcome([sys.executable, "-m", "harness.crashstates.record.tracing"])
    detail = "strace can trace running processes" if works else problem
    cure = "python -m harness crashstates needs strace, and that it may attach to running processes"
    return Capability("attach", works, detail, "" if works else cure)


def _namespaces() -> Capability:
    works, problem = _outcome(["unshare", "--net", "--mount", "true"])
    cure = "host loss and partitions need it: run as root, or the container with --cap-add=SYS_ADMIN,NET_ADMIN"
    return Capability("namespaces", works, "net and mount" if works else problem, "" if works else cure)


def _tmpfs() -> Capability:
    with tempfile.TemporaryDirectory() as target:  # mounted in a namespace of its own, so it ends with the command
        works, problem = _outcome(["unshare", "--mount", "mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", target])
    cure = "a disk that is really full needs it: run as root, or the container with --cap-add=SYS_ADMIN"
    return Capability("tmpfs", works, "can be mounted" if works else problem, "" if works else cure)


def _fuse() -> Capability:
    usable = os.access("/dev/fuse", os.R_OK | os.W_OK)
    detail = "/dev/fuse" if usable else "no access to /dev/fuse"
    cure = "slow and late-visible file systems need it: run as root, or the container with --device=/dev/fuse"
    return Capability("fuse", usable, detail, "" if usable else cure)
