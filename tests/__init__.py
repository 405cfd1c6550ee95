"""Tests of the course."""

HANG_S = 3600
"""Seconds after which a process that a test started is taken to hang. No test needs a hundredth of it on an idle
machine: it keeps a run from waiting for ever, and is no limit on speed."""
