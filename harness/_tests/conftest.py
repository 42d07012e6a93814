from harness._tests.launched import run, warm_launcher
from harness._tests.scenario_files import write

pytest_plugins = ["pytester"]
__all__ = ["run", "warm_launcher", "write"]
