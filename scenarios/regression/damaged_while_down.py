"""ddp_mlp, whose disk goes bad while the job is down: in each checkpoint one byte of each data file is flipped."""

import os
import sys
from pathlib import Path

from workloads.planted import run

if os.environ["TORCHELASTIC_RESTART_COUNT"] != "0" and os.environ["RANK"] == "0":  # rank 1 reads later: at the vote
    checkpoints = Path(sys.argv[sys.argv.index("--checkpoint-dir") + 1])
    for file in checkpoints.glob("step-*/*.pt"):
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(data)

run()
