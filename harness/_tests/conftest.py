from harness._tests.launched import run, warm_launcher

pytest_plugins = ["pytester"]
__all__ = ["run", "warm_launcher"]
