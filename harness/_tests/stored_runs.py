"""Told runs, written as the launcher, the ranks and the judge would have written them."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from harness._tests.histories import Story
from harness.expect import judge
from harness.history import Baseline, History
from harness.plan import write_plan
from harness.report.stored import write_verdicts
from harness.wire import events_path, output_path


def write_history(history: History, run_dir: Path) -> Path:
    """A run directory with everything but verdicts; returns it."""
    run_dir.mkdir(parents=True)
    write_plan(history.plan, run_dir)
    (run_dir / "outcome.json").write_text(json.dumps(asdict(history.outcome)))
    for event in history.events:
        path = events_path(run_dir, event.rank, event.restart)
        path.parent.mkdir(exist_ok=True)
        line = {"t": event.t_ns, "kind": event.kind, "step": event.step, "phase": event.phase, **event.data}
        with path.open("a") as file:
            file.write(json.dumps(line) + "\n")
    for (rank, restart), text in history.stacks.items():
        output_path(run_dir, rank, restart, "stacks").write_text(text, errors="replace")
    return run_dir


def write_judged(history: History, run_dir: Path, baseline: Baseline | None = None) -> Path:
    """The same with its verdicts."""
    write_history(history, run_dir)
    write_verdicts(judge(history, baseline), run_dir)
    return run_dir


def killed_and_recovered(story: Story) -> Story:
    """Rank 1 is killed in step 8 of 12; the others fail in its collective; all resume from step 5."""
    story.start(with_store=True).updates(1, 5).save().updates(6, 7)
    for rank in sorted(story.alive):
        story.begin(rank, 8)
    story.fire(1).kill(1).cut_off()
    return story.start(load=5).updates(6, 10).save().updates(11, 12).leave()
