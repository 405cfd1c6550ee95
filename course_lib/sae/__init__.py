"""Autoencoders on hidden states: a stacked bottleneck and a sparse overcomplete dictionary.

The two share the abbreviation SAE in the literature and are opposites: the stacked one has fewer
units than inputs and compresses, the sparse one has more and takes hidden states apart into
features of which few are active at a time. Here they are always called by their full names.
"""

from course_lib.sae.autoencoder import Autoencoder, load
from course_lib.sae.greedy import train_greedy
from course_lib.sae.io import save
from course_lib.sae.sparse import (
    BatchTopKSparseAutoencoder,
    CrosscoderSparseAutoencoder,
    GatedSparseAutoencoder,
    GroupBiasAdaptedAutoencoder,
    JumpReluSparseAutoencoder,
    KLSparseAutoencoder,
    MatryoshkaBatchTopKSparseAutoencoder,
    MatryoshkaTopKSparseAutoencoder,
    ReluSparseAutoencoder,
    SparseAutoencoder,
    TopKSparseAutoencoder,
)
from course_lib.sae.stacked import StackedAutoencoder
from course_lib.sae.train import DivergedError, History, TrainConfig, train

__all__ = [
    "Autoencoder",
    "BatchTopKSparseAutoencoder",
    "CrosscoderSparseAutoencoder",
    "DivergedError",
    "GatedSparseAutoencoder",
    "GroupBiasAdaptedAutoencoder",
    "History",
    "JumpReluSparseAutoencoder",
    "KLSparseAutoencoder",
    "MatryoshkaBatchTopKSparseAutoencoder",
    "MatryoshkaTopKSparseAutoencoder",
    "ReluSparseAutoencoder",
    "SparseAutoencoder",
    "StackedAutoencoder",
    "TopKSparseAutoencoder",
    "TrainConfig",
    "load",
    "save",
    "train",
    "train_greedy",
]
