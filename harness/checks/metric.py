"""Does evaluation count each sample once, and is what the script reports of it true?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness.checks.base import Verdict, guarantee, invalid, not_applicable, unknown, valid
from harness.checks.evaluation import Evaluation, Pass, evaluations
from harness.checks.records import failed_restarts, listed
from harness.checks.reported import reported_right
from harness.history import Baseline, History

MAX_IDS = 50  # of those that a verdict shows
_CURE = "where only a part is meant, make it a data set of its own (torch.utils.data.Subset)"


@guarantee("MetricRight", "evaluation counts each sample id once, and what is reported of it is true")
def metric_right(history: History, _: Baseline | None) -> Verdict:
    found = [*evaluations(history)]
    known = [one for one in found if one.is_known]
    if lost := next(_lost(history, known), None):
        return lost
    if history.plan.metric is not None:
        return reported_right(history)  # ids that come twice are no mistake where the script counts them once
    if again := next(_repeated(known), None):
        return again
    if not known:
        what = f"{len(found)} evaluations are on record, and none" if found else "no evaluation is on record that"
        return not_applicable(f"{what} reads a data loader whose samples are known and not trained on")
    whole = [one for one in known if one.has_ended and not one.lost]
    if padded := [one for one in whole if _num_repeated(one)]:
        return not_applicable(
            f"{len(padded)} of {len(known)} evaluations repeat samples to make the ranks' shards equal, the first "
            f"{_num_repeated(padded[0])} of {padded[0].samples}; whether the script counts those once, ids cannot "
            "tell: state a [metric]"
        )
    if not whole:
        said = f"no evaluation of {len(known)} came to its end on all ranks"
        return not_applicable(f"{said}: they may be about a part on purpose")
    return valid(f"{len(whole)} evaluations counted each of {_numbers(whole)} samples once")


def _lost(history: History, known: Sequence[Evaluation]) -> Iterator[Verdict]:
    """Evaluations that came to their end without some of the samples."""
    for one in known:
        lost = one.lost
        if not lost or not one.has_ended or (one.absent and one.restart in failed_restarts(history)):
            continue  # it was left early, or who died before it may have had them
        rank = _owner(lost[0], one)
        at = one.passes[rank].end
        said = f"the evaluation after update {one.step} left out {_ids(lost)} of {one.samples}"
        elsewhere = [rank for rank in one.absent if _evaluates_elsewhere(rank, one, known)]
        if elsewhere:
            yield unknown(f"{said}, or {listed(elsewhere)} read them from a loader of another number", at)
            continue
        yield invalid(
            f"{said}; {_CURE}",
            at,
            rank=rank,
            step=one.step,
            seen={"lost": lost[:MAX_IDS], **{f"rank {r}": _shown(p) for r, p in sorted(one.passes.items())}},
        )


def _repeated(known: Sequence[Evaluation]) -> Iterator[Verdict]:
    """Evaluations that handed out samples twice, beyond what a sampler does to make shards equal."""
    for one in known:
        if one.is_repeated_by_each_rank or _num_repeated(one) <= one.padding:
            continue
        twice = sorted(sample for sample, count in one.counted.items() if count > 1)
        rank = max(rank for rank, own in one.passes.items() if twice[0] in (own.ids or ()))
        padding = f", where padding explains {one.padding}" if one.padding else ""
        yield invalid(
            f"the evaluation after update {one.step} handed out {_ids(twice)} more than once: in all "
            f"{_num_repeated(one)} times too often{padding}",
            one.passes[rank].end or one.passes[rank].begin,
            rank=rank,
            step=one.step,
            seen={"twice": twice[:MAX_IDS], **{f"rank {r}": _shown(p) for r, p in sorted(one.passes.items())}},
        )


def _num_repeated(one: Evaluation) -> int:
    return 0 if one.is_repeated_by_each_rank else sum(count - 1 for count in one.counted.values())


def _owner(lost: int, one: Evaluation) -> int:
    """The rank that should have had it: by the stride of the shards, else the one with the fewest samples."""
    sharing = {rank: own.ids or [] for rank, own in one.passes.items()}
    by_stride = [r for r, ids in sharing.items() if ids and all((i - lost) % len(sharing) == 0 for i in ids)]
    return by_stride[0] if len(by_stride) == 1 else min(sharing, key=lambda rank: (len(sharing[rank]), rank))


def _evaluates_elsewhere(rank: int, one: Evaluation, known: Sequence[Evaluation]) -> bool:
    return any(rank in e.passes and (e.restart, e.step) == (one.restart, one.step) for e in known if e is not one)


def _ids(ids: Sequence[int]) -> str:
    shown = ", ".join(map(str, ids[:5])) + (", ..." if len(ids) > 5 else "")
    return f"sample {shown}" if len(ids) == 1 else f"{len(ids)} samples ({shown})"


def _shown(own: Pass) -> list[int]:
    return (own.ids or [])[:MAX_IDS]


def _numbers(whole: Sequence[Evaluation]) -> str:
    return ", ".join(map(str, sorted({one.samples or 0 for one in whole})))
