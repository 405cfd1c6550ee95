"""Autoencoders on hidden states: a stacked bottleneck and a sparse overcomplete dictionary.

The two share the abbreviation SAE in the literature and are opposites: the stacked one has fewer
units than inputs and compresses, the sparse one has more and takes hidden states apart into
features of which few are active at a time. Here they are always called by their full names.
"""

from course_lib.sae.autoencoders import Autoencoder, SparseAutoencoder, StackedAutoencoder
from course_lib.sae.io import load, save
from course_lib.sae.train import History, TrainConfig, train

__all__ = [
    "Autoencoder",
    "History",
    "SparseAutoencoder",
    "StackedAutoencoder",
    "TrainConfig",
    "load",
    "save",
    "train",
]
