"""Chaos: plans drawn from a seed, run by the hundred, judged by what the guarantees demand of them.

In the order of a night:

    job         what is trained: a workload, so many ranks, so many updates; and the ground that faults are drawn on
    draw        from (seed, number) to a scenario; the same one on any machine, in any shard
    place       where a fault acts, in words that coverage is counted by
    trial       one plan run and judged, in a worker process; some are run twice and compared
    canary      a planted bug that every night must find
    budget      how many runs, how much time; whether one more fits
    shrink      a failing plan made smaller while it fails in the same way
    write       the smallest one as a scenario file, which is run again before it is called reproduced
    same_cause  of findings of one cause the smallest file is kept, and the others are counted
    progress    what is printed meanwhile
    night       all of it, and what it comes to
    command     its options, for ``python -m harness chaos`` and for pytest

Plans come from ``random.Random``, not from hypothesis: a plan depends on (seed, number) and on nothing else, so that
any shard draws the same one, without the plans before it; and shrinking counts real runs of half a second and more,
for which a few steps ordered by what a reader gains are worth more than many small ones.
"""
