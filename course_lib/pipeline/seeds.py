"""Independent random numbers for each use of one seed."""

import hashlib

import torch


def generator(seed: int, stream: int) -> torch.Generator:
    """A source of random numbers of its own for each number `stream` of a seed."""
    mixed = hashlib.sha256(f"{seed}/{stream}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(mixed[:7]))
