"""Optimisation: how step sizes, noise and norms decide whether training works (part I)."""
