"""Settings for this repository's own tests; the plugin ``harness.plugin`` comes with the installed package."""

pytest_plugins = ["pytester"]  # harness/_tests run the plugin in a pytest of its own
