"""Savers and readers with one bug each; ``expected.toml`` says what each must be found to do, and after which crash."""
