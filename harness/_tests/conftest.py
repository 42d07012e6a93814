from harness._tests.crash_readers import open_reader, torch_host
from harness._tests.launched import run, warm_launcher
from harness._tests.scenario_files import write

pytest_plugins = ["pytester"]
__all__ = ["open_reader", "run", "torch_host", "warm_launcher", "write"]
