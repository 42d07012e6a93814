"""The digest of parameters against reading the same memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import torch

from harness._bench.row import Row
from harness.rank.digest import digest_of

SIZE_BYTES = 1 << 28  # beyond every cache
ROUNDS = 9


def measure() -> Iterator[Row]:
    torch.set_num_threads(1)
    parameters = torch.ones(SIZE_BYTES // 4)
    words = parameters.view(torch.int64)
    digest_s, read_s = [], []
    for _ in range(ROUNDS):  # by turns, so that both meet the same neighbours
        digest_s.append(_duration_s(lambda: digest_of(["parameters"], [parameters])))
        read_s.append(_duration_s(lambda: words.sum()))
    digest_gbps, read_gbps = (SIZE_BYTES / min(times) / 1e9 for times in (digest_s, read_s))
    yield Row(
        what="memory-read bandwidth / bandwidth of the digest of parameters",
        measured=read_gbps / digest_gbps,
        budget=1 / 0.8,
        detail=f"{read_gbps:.1f} GB/s / {digest_gbps:.1f} GB/s, one thread, best of {ROUNDS}",
    )


def _duration_s(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started
