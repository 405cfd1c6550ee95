"""Attention: its scale, positions by rotation, and relatives that cost linear time in the sequence (part III)."""

from course_lib.attention.kernelized import (
    LinearState,
    Quadratic,
    elu_features,
    linear_attention,
    recurrent_step,
)
from course_lib.attention.layers import Decoder, DecoderConfig, DecoderState
from course_lib.attention.random_features import (
    RandomFeatureState,
    positive_features,
    random_feature_attention,
    trigonometric_features,
)
from course_lib.attention.ridge import DeltaState, RidgeState, delta_rule, ridge_attention
from course_lib.attention.rotary import (
    apply_rotary,
    convert_layout,
    interpolated_frequencies,
    llama3_frequencies,
    ntk_frequencies,
    rope,
    rope_frequencies,
    rotary_table,
    yarn_attention_factor,
    yarn_frequencies,
)
from course_lib.attention.scaled_dot_product import attention, qk_norm_attention

__all__ = [
    "Decoder",
    "DecoderConfig",
    "DecoderState",
    "DeltaState",
    "LinearState",
    "Quadratic",
    "RandomFeatureState",
    "RidgeState",
    "apply_rotary",
    "attention",
    "convert_layout",
    "delta_rule",
    "elu_features",
    "interpolated_frequencies",
    "linear_attention",
    "llama3_frequencies",
    "ntk_frequencies",
    "positive_features",
    "qk_norm_attention",
    "random_feature_attention",
    "recurrent_step",
    "ridge_attention",
    "rope",
    "rope_frequencies",
    "rotary_table",
    "trigonometric_features",
    "yarn_attention_factor",
    "yarn_frequencies",
]
