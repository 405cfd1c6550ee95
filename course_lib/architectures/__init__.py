"""Architectures: the layers that networks are built from, and their gradients by hand (part II)."""

from course_lib.architectures.convolution import conv2d, depthwise_conv2d
from course_lib.architectures.graphs import Graph, aggregate, gcn_graph, gcn_layer
from course_lib.architectures.normalisation import BatchNorm, batch_norm, dropout, dropout_ridge
from course_lib.architectures.recurrent import gru, min_gru, rnn
from course_lib.architectures.selective import decayed_attention, selective_scan
from course_lib.architectures.state_space import diagonal_ssm, discretize, fft_convolution

__all__ = [
    "BatchNorm",
    "Graph",
    "aggregate",
    "batch_norm",
    "conv2d",
    "decayed_attention",
    "depthwise_conv2d",
    "diagonal_ssm",
    "discretize",
    "dropout",
    "dropout_ridge",
    "fft_convolution",
    "gcn_graph",
    "gcn_layer",
    "gru",
    "min_gru",
    "rnn",
    "selective_scan",
]
