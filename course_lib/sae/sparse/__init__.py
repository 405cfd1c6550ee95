"""Sparse autoencoders: overcomplete dictionaries, one small class for each way to keep few features active.

All compute pre-activations p = W_e (x - b_d) + b_e, turn them into features f >= 0 of which most are 0,
and write back x' = W_d f + b_d. They differ in the step from p to f and in the penalty:

    ReLU + L1   f = max(p, 0)                           lambda sum_i f_i ||W_d[:, i]||
    KL          f = sigmoid(p)                          beta sum_i KL(rho || mean f_i)
    TopK        f = max(p, 0) at the k largest p        none
    BatchTopK   the k N largest p of N rows together    none
    JumpReLU    f = p where p > theta_i, learned        lambda sum_i 1[p_i > theta_i], or its tanh form
    GBA         f = p - b where p > 0, b adapted        none
    Gated       f = m where p > 0, m another path       lambda sum_i max(p_i, 0) ||W_d[:, i]||, and the gate's loss
    Matryoshka  TopK or BatchTopK                       none; every prefix of the features reconstructs, too
    Crosscoder  ReLU or TopK, several sites at once     by the sum of the decoder norms of all sites

Here is the readable, dense form of each. What `train` runs computes the same by the kernels of
`kernels`; tests hold the two together.
"""

from course_lib.sae.sparse.base import SparseAutoencoder, remove_radial_, rescale_columns_
from course_lib.sae.sparse.batch_topk import BatchTopKSparseAutoencoder
from course_lib.sae.sparse.crosscoder import CrosscoderSparseAutoencoder, exclusive_site
from course_lib.sae.sparse.gated import GatedSparseAutoencoder
from course_lib.sae.sparse.group_bias import GroupBiasAdaptedAutoencoder, adapted_bias
from course_lib.sae.sparse.jump_relu import JumpReluSparseAutoencoder
from course_lib.sae.sparse.kl import KLSparseAutoencoder
from course_lib.sae.sparse.matryoshka import (
    MatryoshkaBatchTopKSparseAutoencoder,
    MatryoshkaTopKSparseAutoencoder,
)
from course_lib.sae.sparse.relu import ReluSparseAutoencoder
from course_lib.sae.sparse.topk import TopKSparseAutoencoder

__all__ = [
    "BatchTopKSparseAutoencoder",
    "CrosscoderSparseAutoencoder",
    "GatedSparseAutoencoder",
    "GroupBiasAdaptedAutoencoder",
    "JumpReluSparseAutoencoder",
    "KLSparseAutoencoder",
    "MatryoshkaBatchTopKSparseAutoencoder",
    "MatryoshkaTopKSparseAutoencoder",
    "ReluSparseAutoencoder",
    "SparseAutoencoder",
    "TopKSparseAutoencoder",
    "adapted_bias",
    "exclusive_site",
    "remove_radial_",
    "rescale_columns_",
]
