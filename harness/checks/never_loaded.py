"""A restart that began at zero and looked for no checkpoint.

What our store calls done is a checkpoint. What ``torch.save`` and its like wrote may be one, or an export that nobody
means to load; and where nothing is seen to be saved, the script may save in a way that is not seen, or not at all.
These are questions, not broken promises.
"""

from __future__ import annotations

from harness.checks.records import ended_well, listed, start_step, state_of
from harness.checks.replicas import digests
from harness.history import History
from harness.wire import Event, Kind

_LAST_WORDS = (Kind.FAULT, Kind.EXCEPTION, Kind.EXIT)


def unloaded_save(history: History, restart: int) -> tuple[Event, str] | None:
    """The newest foreign save that this restart might have gone on from, and what it did instead, in words.

    Returns:
        None if nothing was saved after an update, if the restart did none, if any of its ranks went on from a later
        step than 0 or loaded anything new, or if the scenario says that step 0 is meant (``resume_step = 0``).
    """
    started = {e.rank: e for e in reversed(history.of(Kind.UPDATE)) if e.restart == restart}
    if not started or history.plan.expect.resume_step == 0:
        return None
    states = [state_of(history, rank, restart) for rank in started]
    if any(state is None or state.step > 0 for state in states) or _loaded_anything_new(history, restart):
        return None
    began_ns = min(e.t_ns for e in started.values())
    saves = [e for e in history.of(Kind.FOREIGN_SAVE) if e.restart < restart and e.t_ns < began_ns and e.step > 0]
    newest = max((e for e in saves if _went_on(history, e)), key=lambda e: (e.step, e.t_ns), default=None)
    return None if newest is None else (newest, f"{listed(started)} loaded nothing and went on from step 0")


def begun_anew(history: History) -> tuple[Event, str] | None:
    """The last launch, if it began at zero in a job of which no save after an update is on record, and what it lost.

    Returns:
        None if our store was asked, if the job failed (then it has not recovered either), if no earlier launch made an
        update, if a rank went on from a later step, or if the scenario says that step 0 is meant.
    """
    is_saved = any(save.step > 0 for save in history.of(Kind.FOREIGN_SAVE))
    if is_saved or history.of((Kind.LOAD, Kind.INVENTORY, Kind.SAVE_END)):
        return None
    last = history.restarts
    steps = {place: [step for step, _ in made.updates] for place, made in history.each(digests).items()}
    started = sorted(rank for (rank, restart), made in steps.items() if restart == last and made)
    before = max((step for (_, restart), made in steps.items() if restart < last for step in made), default=0)
    if not started or not before or not ended_well(history) or history.plan.expect.resume_step == 0:
        return None
    begins = [start_step(history, rank, last) for rank in started]
    if any(begin is None or begin[0] > 0 for begin in begins):
        return None
    first = min((history.of(Kind.UPDATE, rank=rank, restart=last)[0] for rank in started), key=lambda e: e.t_ns)
    return first, f"{listed(started)} began again at step 0, after update {before} had been made"


def _loaded_anything_new(history: History, restart: int) -> bool:
    """Beside what the first launch had read before it saved anything: weights to begin with, say."""
    loads = history.of((Kind.LOAD, Kind.FOREIGN_LOAD))
    mine = [e for e in loads if e.restart == restart]
    first_save_ns = min((e.t_ns for e in history.of(Kind.FOREIGN_SAVE)), default=None)
    known = {e.data["path"] for e in loads if e.restart == 0 and (first_save_ns is None or e.t_ns < first_save_ns)}
    return any(e.kind == Kind.LOAD or e.data["path"] is None or e.data["path"] not in known for e in mine)


def _went_on(history: History, save: Event) -> bool:
    """Whether that process did more after it: else the file may be a draft that has not got its name yet."""
    after = history.of(rank=save.rank, restart=save.restart)
    return any(e.seq > save.seq and e.kind not in _LAST_WORDS for e in after)
