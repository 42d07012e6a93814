"""ddp_mlp whose answer to SIGTERM takes longer than anybody waits."""

import signal
import time

from workloads.planted import run

signal.signal(signal.SIGTERM, lambda *_: time.sleep(60))
run()
