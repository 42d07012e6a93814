"""Save and load, all ranks together, so that a crash at any instant leaves the newest complete checkpoint loadable.

save    vote: begin; every rank writes its files; vote: wrote; rank 0 writes manifest and marker, renames the
        directory to its final name; vote: published. Only then is a save done, on all ranks; what follows
        (``latest``, retention) may fail without harm.
async   the parts are copied, and all ranks vote on that; the votes and writes of a save follow in a thread.
load    rank 0 lists the candidates; for each, newest first, every rank verifies and reads the files it needs, and
        all vote; the first that is good on all ranks is loaded. What failed is set aside, never deleted.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import platform
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from harness.checkpoint import files, judge, layout, owner, parts, points, publishing, reading, retention
from harness.checkpoint.exchange import Exchange, agree, current_exchange
from harness.checkpoint.judge import Entry
from harness.checkpoint.layout import FileRecord, Manifest
from harness.checkpoint.owner import Claim
from harness.checkpoint.pending import PendingSave as PendingSave
from harness.checkpoint.pending import Saved as Saved
from harness.checkpoint.reading import Found
from harness.errors import LoadRefused, SaveFailed
from harness.wire import Kind

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """What a load brought back.

    Attributes:
        shared: part name -> value, the same on all ranks; tensors on the CPU.
        own: this rank's parts.
        candidates: what was looked at, newest first; the last one is what was loaded.
    """

    step: int
    path: Path
    manifest_sha256: str
    shared: dict[str, Any]
    own: dict[str, Any]
    candidates: tuple[Entry, ...]


class CheckpointStore:
    """The checkpoints of one job in one directory. Every rank makes one and calls its methods together.

    One save at a time: ``save``, ``async_save`` and ``load`` first wait for a pending one, and raise what went wrong in
    it if nobody has asked for its result. The interpreter waits for it before it ends; ``destroy_process_group()`` does
    not, so call ``wait()`` before.

    Args:
        root: a directory that all ranks see; made on the first call, with access for its owner only.
        keep_last: how many verified checkpoints stay, at least 2: the newest may turn out to be unreadable.
        config: JSON values that must be the same for whoever loads; a difference is refused by its field's name.
        exchange: how the ranks vote; None takes the default process group, or this one process without it.

    Raises:
        ValueError: ``keep_last`` is under 2.
        TypeError: ``config`` is not JSON.
    """

    def __init__(
        self,
        root: Path | str,
        keep_last: int = 3,
        config: Mapping[str, Any] | None = None,
        *,
        exchange: Exchange | None = None,
    ) -> None:
        if keep_last < 2:
            raise ValueError(f"keep_last is {keep_last}; it must be at least 2, since the newest may be unreadable")
        self.root = Path(root).absolute()
        self.keep_last = keep_last
        self._config: dict[str, Any] = json.loads(json.dumps(dict(config or {})))
        self._exchange = exchange
        self._claim: Claim | None = None  # rank 0 only
        self._parent: str | None = None  # manifest of what this job loaded or saved last
        self._verified: list[int] = []  # steps that this process loaded or saved, ascending
        self._has_loaded = False
        self._under_way: PendingSave | None = None

    def save(self, step: int, shared: Mapping[str, Any], own: Mapping[str, Any]) -> Saved:
        """Write the checkpoint of update ``step``; returns once every rank knows that it is durable.

        Args:
            shared: part name -> value, what all ranks have alike; taken from rank 0.
            own: what belongs to this rank alone, such as its random states and its sampler's position.

        Raises:
            SaveFailed: on all ranks; the checkpoints before it are untouched.
            RuntimeError: from the process group, if a rank is gone; what was being written stays unpublished.
        """
        self.wait()
        exchange = self._exchange or current_exchange()
        points.reach("ckpt.save:before")
        with self._telling(step) as path:
            saved = self._save(exchange, step, path, shared, own)
        points.reach("ckpt.save:after")
        return saved

    def async_save(self, step: int, shared: Mapping[str, Any], own: Mapping[str, Any]) -> PendingSave:
        """Copy everything to memory and go on; the save itself is done in a thread beside the training.

        What is saved is what the parts are now, whatever becomes of their tensors, numbers and lists. The votes of the
        thread have a gloo group of their own, made at the first call. ``latest`` and retention wait for the save's end.

        Args:
            shared, own: as for ``save``; the copy takes as much memory as the files of this rank will have.

        Returns:
            whose ``result()`` is what ``save`` returns or raises.

        Raises:
            SaveFailed: on all ranks, if the copy failed on any, or for a pending save that failed unasked.
        """
        self.wait()
        exchange = self._exchange or current_exchange()
        frozen_shared: dict[str, parts.Frozen] = {}
        frozen_own: list[parts.Frozen] = []

        def freeze() -> None:
            if exchange.rank == 0:
                self._check_step(step, shared)
                frozen_shared.update({p: parts.freeze(layout.shared_file(p), value) for p, value in shared.items()})
            frozen_own.append(parts.freeze(layout.own_file(exchange.rank), dict(own)))

        def work() -> Saved:
            with self._telling(step) as path:
                return self._save(apart, step, path, frozen_shared, frozen_own[0])

        points.reach("ckpt.save:before")
        agree(exchange, f"save of step {step}: copied", freeze, SaveFailed)
        apart = exchange.apart(self)
        self._under_way = PendingSave(step, work)
        points.reach("ckpt.save:after")
        return self._under_way

    def wait(self) -> None:
        """Wait for a pending save, if there is one.

        Raises:
            SaveFailed, RuntimeError: what went wrong in it, if nobody has asked for its result.
        """
        if self._under_way is not None and not self._under_way.is_asked_for:
            self._under_way.result()
        self._under_way = None

    def load(self, at_most: int | None = None) -> Loaded | None:
        """The newest checkpoint that is valid on all ranks; None if there never was one here.

        Args:
            at_most: roll back: take none after this step, and set newer ones aside.

        Raises:
            LoadRefused: on all ranks. Something is there and nothing valid, or it was saved by another number of
                ranks or with another config, or another process is writing here. Nothing was changed.
            SaveFailed: a pending save failed, and nobody has asked for its result.
        """
        self.wait()
        exchange = self._exchange or current_exchange()
        points.reach("ckpt.load:before")
        with _telling_failure(Kind.LOAD_ERROR, 0, self.root):
            loaded = self._load(exchange, at_most)
        self._has_loaded = True
        if loaded is None:
            points.tell(Kind.LOAD, 0, path=None, loaded_step=None, manifest=None, candidates=[])
        else:
            self._parent, self._verified = loaded.manifest_sha256, [loaded.step]
            points.tell(
                Kind.LOAD,
                loaded.step,
                path=str(loaded.path),
                loaded_step=loaded.step,
                manifest=loaded.manifest_sha256,
                candidates=[asdict(entry) for entry in loaded.candidates],
            )
        points.reach("ckpt.load:after")
        return loaded

    @contextmanager
    def _telling(self, step: int) -> Iterator[Path]:
        """Tell the harness that a save begins, and if it fails; gives the path that the checkpoint will have."""
        path = self.root / f"step-{step}"
        points.tell(Kind.SAVE_START, step, path=str(path))
        with _telling_failure(Kind.SAVE_ERROR, step, path):
            yield path

    def _save(self, exchange: Exchange, step: int, path: Path, shared: Mapping[str, Any], own: Any) -> Saved:
        """A save from its first vote to the end of its tidying up; the parts are frozen or not."""
        manifest_sha256 = self._agree_on(exchange, step, shared, own)
        points.tell(Kind.SAVE_END, step, path=str(path), manifest=manifest_sha256)
        self._parent = manifest_sha256
        self._has_loaded = True
        if self._verified[-1:] != [step]:
            self._verified.append(step)
        if exchange.rank == 0:
            self._try_tidying(step, lambda: self._after_save(step))
        return Saved(step=step, path=path, manifest_sha256=manifest_sha256)

    def _agree_on(self, exchange: Exchange, step: int, shared: Mapping[str, Any], own: Any) -> str:
        """The three votes of a save; returns the manifest's sha256."""
        is_first = exchange.rank == 0
        label = f"save of step {step}"
        staging, is_staged = "", False
        written: list[FileRecord] = []

        def begin() -> list[str]:
            nonlocal is_staged
            name = ""
            if is_first:
                self._check_step(step, shared)
                is_staged = True
                name = publishing.stage(self.root, step, self._own())
            return [name, layout.digest(json.dumps(self._config, sort_keys=True).encode())]

        def write() -> list[dict[str, Any]]:
            return [asdict(record) for record in self._write(staging, exchange.rank, shared if is_first else {}, own)]

        def publish() -> str:
            sha256 = self._publish(staging, step, exchange.world_size, written) if is_first else ""
            points.reach("ckpt.acknowledge:before")
            return sha256

        try:
            begun = agree(exchange, f"{label}: begin", begin, SaveFailed)
            if len({config for _, config in begun}) > 1:
                raise SaveFailed(f"{label}: the ranks were given different configs; give all of them the same")
            staging = begun[0][0]
            for records in agree(exchange, f"{label}: wrote", write, SaveFailed):
                written += [FileRecord(**record) for record in records]
            manifest_sha256: str = agree(exchange, f"{label}: published", publish, SaveFailed)[0]
        except SaveFailed:
            if is_staged:  # by now all ranks know, and none is writing any more
                is_new = self._verified[-1:] != [step]
                self._try_tidying(step, lambda: publishing.give_up(self.root, step, self._own(), retract=is_new))
            raise
        points.reach("ckpt.acknowledge:after")
        return manifest_sha256

    def _check_step(self, step: int, shared: Mapping[str, Any]) -> None:
        """Rank 0: refuse what cannot be saved, before anything is written."""
        if type(step) is not int or not 0 <= step < 10**18:
            raise ValueError(f"step is {step!r}; it must be a whole number from 0")
        for part in shared:
            if not layout.is_part_name(part):
                raise ValueError(f"the shared part {part!r} must be named by a-z, 0-9 and _, a letter first")
        if self._verified and step < self._verified[-1]:
            raise ValueError(f"step {step} comes after step {self._verified[-1]} was saved or loaded; steps only grow")
        self._own()
        with files.open_root(self.root) as root_fd:
            there = judge.candidates(files.list_names(root_fd))
        if there and not self._has_loaded:
            raise ValueError(
                f"{self.root} holds {there[0]}, which this job did not load: "
                "call load() first, or give an empty directory"
            )

    def _write(self, staging: str, rank: int, shared: Mapping[str, Any], own: Any) -> list[FileRecord]:
        mine = own if isinstance(own, parts.Frozen) else dict(own)
        files.await_name(self.root, staging)
        with files.open_root(self.root) as root_fd, files.open_directory(root_fd, staging) as dir_fd:
            records = [parts.save_part(dir_fd, layout.shared_file(p), value, rank) for p, value in shared.items()]
            records.append(parts.save_part(dir_fd, layout.own_file(rank), mine, rank))
            if rank != 0:
                os.fsync(dir_fd)  # on a network file system each client syncs what it made; rank 0 does so later
        return records

    def _publish(self, staging: str, step: int, world_size: int, written: list[FileRecord]) -> str:
        claim = self._own()
        manifest = Manifest(
            step=step,
            attempt=claim.attempt,
            parent=self._parent,
            world_size=world_size,
            config=self._config,
            made_with={"torch": torch.__version__, "python": platform.python_version()},
            files=tuple(sorted(written)),
        )
        if self._verified[-1:] == [step]:
            return publishing.same_again(self.root, staging, manifest)
        return publishing.publish(self.root, staging, manifest, claim)

    def _after_save(self, step: int) -> None:
        """Rank 0, once all ranks know that the save is done: what may fail without harm."""

        def changed() -> None:
            self._tell_inventory("retention", step, read_data=False)

        self._tell_inventory("saved", step, read_data=False)
        publishing.point_latest(self.root, step)
        with files.open_root(self.root) as root_fd:
            for name in retention.leftovers(root_fd, self._own()):
                retention.delete(root_fd, name)
            for name in retention.to_retire(root_fd, self._verified, self.keep_last):
                retention.retire(root_fd, name, self._own(), changed)

    def _try_tidying(self, step: int, tidy: Callable[[], None]) -> None:
        try:
            tidy()
        except OSError as error:
            log.warning("%s: step %d: tidying up failed, which harms no checkpoint: %s", self.root, step, error)

    def _load(self, exchange: Exchange, at_most: int | None) -> Loaded | None:
        """The votes of a load: one to begin, one a candidate, one more if something is to be set aside."""
        is_first = exchange.rank == 0
        names, traces = agree(exchange, "load: begin", self._list if is_first else list, LoadRefused)[0]
        newer = [name for name in names if at_most is not None and (layout.step_of(name) or 0) > at_most]
        looked_at: list[Entry] = []
        for name in names[len(newer) :]:
            found, entry, refusal = self._vote_on(exchange, name)
            looked_at.append(entry)
            if refusal is not None:
                raise LoadRefused(f"{self.root / name} must not be loaded: {refusal}. Nothing was changed")
            if entry.verdict == "complete":
                break
        else:
            if looked_at or newer or traces:
                raise LoadRefused(reading.nothing_valid(self.root, looked_at, newer, traces))
            return None
        failed = [entry.name for entry in looked_at[:-1]]
        if failed or newer:
            log.warning("%s: loading %s; set aside: %s", self.root, name, ", ".join(failed + newer))
            aside = functools.partial(reading.set_aside, self.root, failed, newer)
            agree(exchange, "load: set aside", lambda: aside(self._own()) if is_first else None, LoadRefused)
            if is_first and (step := entry.step) is not None:
                self._try_tidying(step, lambda: publishing.point_latest(self.root, step))
        assert entry.step is not None
        assert entry.manifest is not None
        return Loaded(
            step=entry.step,
            path=self.root / name,
            manifest_sha256=entry.manifest,
            shared=found.shared,
            own=found.own,
            candidates=tuple(looked_at),
        )

    def _list(self) -> list[list[str]]:
        """Rank 0: [the candidates, newest first; what else says that there was a checkpoint here]."""
        self._own()
        self._tell_inventory("load", 0, read_data=True)
        with files.open_root(self.root) as root_fd:
            names = files.list_names(root_fd)
        return [judge.candidates(names), layout.traces(names)]

    def _vote_on(self, exchange: Exchange, name: str) -> tuple[Found, Entry, str | None]:
        """This rank's finding, and the verdict and the refusal of all ranks together."""
        found: Found | None = None

        def read() -> dict[str, Any]:
            nonlocal found
            files.await_name(self.root, name)
            found = points.around("ckpt.load.read", self._read, name, exchange.rank, exchange.world_size)
            points.reach("ckpt.load.agree:before")
            return found.ballot()

        ballots = agree(exchange, f"load: {name}", read, LoadRefused)
        points.reach("ckpt.load.agree:after")
        assert found is not None  # agree raised if read did
        return found, *reading.common_verdict(ballots)

    def _read(self, name: str, rank: int, world_size: int) -> Found:
        return reading.read_candidate(self.root, name, rank, world_size, self._config)

    def _own(self) -> Claim:
        """Rank 0: this process as the directory's one writer."""
        if self._claim is None:
            self._claim = owner.claim(self.root)
        return self._claim

    def _tell_inventory(self, why: str, step: int, *, read_data: bool) -> None:
        if points.listener is not None:
            entries = [asdict(entry) for entry in judge.inspect(self.root, read_data)]
            points.tell(Kind.INVENTORY, step, root=str(self.root), entries=entries, why=why)


@contextmanager
def _telling_failure(kind: Kind, step: int, path: Path) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        words, ranks = f"{type(error).__name__}: {error}", list(getattr(error, "ranks", ()))
        points.tell(kind, step, path=str(path), error=words, ranks=ranks)
        raise
