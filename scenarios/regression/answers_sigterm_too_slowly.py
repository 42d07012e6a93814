"""ddp_mlp whose answer to SIGTERM takes longer on rank 1 than anybody waits; on the others torchrun would wait 30 s."""

import os
import signal
import time

from workloads.planted import run

if os.environ["RANK"] == "1":
    signal.signal(signal.SIGTERM, lambda *_: time.sleep(60))
run()
