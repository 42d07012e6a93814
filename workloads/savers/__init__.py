"""Savers and readers that no crash harms: `python -m harness crashstates` finds them valid. Examples to copy."""
