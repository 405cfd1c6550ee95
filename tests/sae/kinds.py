"""Kinds of sparse autoencoder with AuxK, gates, prefixes or several sites, for tests of training."""

from dataclasses import replace

from course_lib.sae import (
    CrosscoderSparseAutoencoder,
    GatedSparseAutoencoder,
    MatryoshkaBatchTopKSparseAutoencoder,
    TopKSparseAutoencoder,
)


def composed_kinds(config):
    """Return by name how to make each from a generator, and how to train it."""
    return {
        "topk, aux": (
            lambda g: TopKSparseAutoencoder(8, 32, k=1, aux_k=4, dead_after=100, generator=g),
            config,
        ),
        "matryoshka": (
            lambda g: MatryoshkaBatchTopKSparseAutoencoder(8, 32, k=2, aux_k=4, dead_after=100, generator=g),
            replace(config, unit_norm_decoder=True),
        ),
        "gated, revived": (
            lambda g: GatedSparseAutoencoder(8, 32, l1=2.0, generator=g),
            replace(config, revive_every=9, unit_norm_decoder=True, sparsity_warm_up=0),
        ),
        "crosscoder": (
            lambda g: CrosscoderSparseAutoencoder(8, 32, sites=(3, 5), l1=0.3, generator=g),
            config,
        ),
        "crosscoder, topk": (
            lambda g: CrosscoderSparseAutoencoder(8, 32, sites=(3, 5), k=2, generator=g),
            replace(config, revive_every=9),
        ),
    }
