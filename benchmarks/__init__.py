"""Benchmarks: ratios against a peer, in one interleaved run; printed, never asserted."""
