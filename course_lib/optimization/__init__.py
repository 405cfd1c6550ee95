"""Optimisation: how step sizes, noise and norms decide whether training works (lessons 01 to 07)."""
