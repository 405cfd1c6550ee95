"""Everything runs where its inputs are, and no training step waits for a number: asked without a GPU.

The public functions of `architectures`, `attention`, `optimization`, `representation`, `sae` and `theory` that take
tensors are called on the meta device, forward and backward, and under `FakeTensorMode` on tensors that claim to be on
a GPU, forward. Neither holds numbers. What mixes devices, or reads a value back (`item`, `nonzero`, the truth value of
a tensor), raises there; on a GPU it would fail, or stop the queue of kernels at every step. Most inputs are made from
the annotations of a signature (FROM_SIGNATURE); the others are written out (CASES).
"""

import ast
import importlib
import importlib.util
import inspect
import pkgutil
import types
import typing
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily

from course_lib import sae
from course_lib.architectures import convolution, graphs, normalisation, recurrent
from course_lib.attention import (
    decay,
    feature_maps,
    fixed_memory,
    fused_quadratic,
    kernelized,
    kernelized_chunks,
    quadratic_in_parallel,
    random_features,
    recall,
    rotary,
    shapes,
)
from course_lib.attention import layers as decoders
from course_lib.attention import ridge as ridge_attention
from course_lib.optimization import (
    muon,
    mup,
    newton_schulz,
    ridge,
    steepest_descent,
)
from course_lib.representation import attention_only, circuits, erasure, lora, one_place_back, pca
from course_lib.sae import by_hand, kernels, metrics, sparse
from course_lib.theory import attention_margin as margin
from course_lib.theory import hawkes, markov_chains, tensor_nuclear_norm
from course_lib.theory import in_context_regression as icr
from course_lib.theory import induction_heads as induction


class Inputs:
    """Leaves on a device: `r(4, 3)` is a table of floating-point numbers, `r.whole(4)` of whole ones."""

    def __init__(self, device: str, *, learn: bool) -> None:
        self.device, self.learn = device, learn

    def __call__(self, *shape: int) -> Tensor:
        return torch.rand(shape, device=self.device).requires_grad_(self.learn)

    def whole(self, *shape: int) -> Tensor:
        return torch.zeros(*shape, dtype=torch.int64, device=self.device)

    def qkv(self) -> tuple[Tensor, Tensor, Tensor]:
        return self(2, 3, 5, 4), self(2, 3, 5, 4), self(2, 3, 5, 6)

    def module(self, make: Callable[[], nn.Module]) -> nn.Module:
        """A module with parameters and buffers on the device: `to` cannot turn them into fake ones."""
        with unset_fake_temporarily():
            made = make()
        for part in made.modules():
            for name, value in part._parameters.items():
                part._parameters[name] = value if value is None else nn.Parameter(self._like(value))
            for name, value in part._buffers.items():
                part._buffers[name] = value if value is None else self._like(value)
        return made

    def _like(self, value: Tensor) -> Tensor:
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=self.device)


# Inputs from a signature. Every size that an annotation names is 4, and other parameters have a value by their name.
SIZE = 4
VALUES = {
    **dict.fromkeys(("step_size", "lr", "rho", "beta", "gamma", "l1", "noise", "threshold"), 0.1),
    **dict.fromkeys(("penalty", "temperature", "momentum"), 0.5),
    **dict.fromkeys(("std", "alpha", "radius", "noise_variance"), 1.0),
    **dict.fromkeys(("steps", "k", "distance", "order"), 2),
    **dict.fromkeys(("dtype", "compute_dtype"), torch.float32),
    **{
        "keep": 0.8,
        "length": 5,
        "n_frequencies": 3,
        "scale": 2.0,
        "frequency": 0.3,
        "share": 0.9,
        "lags": (1, 2),
    },
    **{"p": 3, "power": 3, "training": True, "causal": True, "diagonal": False, "eps": 1e-6},
    **{"activation": "relu", "kind": "positive", "norm": "l2", "coefficients": (2.0, -1.5, 0.5)},
}


def call(function: Callable, r: Inputs) -> object:
    """Call a function with inputs made from its annotations; what has a default is left out, but device and mask."""
    positional, named = [], {}
    for parameter in inspect.signature(function, eval_str=True).parameters.values():
        if parameter.name == "device":
            named["device"] = torch.device(r.device)
        elif parameter.name == "causal":
            named["causal"] = True
        elif parameter.default is parameter.empty and parameter.kind in (0, 1):
            positional.append(made(parameter.annotation, parameter.name, r))
        elif parameter.default is parameter.empty and parameter.kind == parameter.KEYWORD_ONLY:
            named[parameter.name] = made(parameter.annotation, parameter.name, r)
    return function(*positional, **named)


def made(annotation: typing.Any, name: str, r: Inputs) -> object:
    """Return what an annotation asks for: a tensor of its shape and kind, a value by its name, or a table of tensors."""
    if isinstance(annotation, types.UnionType):
        annotation = annotation.__args__[0]
    if annotation is Tensor:
        return r(SIZE, SIZE)
    if hasattr(annotation, "dim_str"):
        axes = [axis for axis in annotation.dim_str.split() if not axis.startswith(("*", "..."))]
        shape = [2 if axis == "two" else int(axis) if axis.isdigit() else SIZE for axis in axes]
        kinds = annotation.dtypes if isinstance(annotation.dtypes, list | tuple) else ()
        if kinds and all("int" in kind for kind in kinds):
            return r.whole(*shape)
        if kinds and all("complex" in kind for kind in kinds):
            return torch.complex(r(*shape), r(*shape))
        return r(*shape).detach() > 0 if list(kinds) == ["bool"] else r(*shape)
    if name in VALUES:
        return VALUES[name]
    return SIZE if annotation is int else call(annotation, r)


def heads(r: Inputs) -> circuits.Heads:
    """Two layers of two heads on a stream of six dimensions."""
    return circuits.Heads.decoder(r(2, 2, 6, 3), r(2, 2, 6, 3), r(2, 2, 6, 3), r(2, 2, 3, 6))


def circuit_norms(r: Inputs) -> list[Tensor]:
    """What a circuit computes in r x r matrices; eigenvalues of unsymmetric ones have no gradient on meta."""
    made = circuits.Circuit(r(6, 3), r(3, 6))
    return [made.norm(), made.then(made.transposed()).matrix(), made.apply(r(4, 6))]


def chunk_inputs(r, feature_map):
    """Tokens and form of one chunked call."""
    weights, floor = r(2, 5, 1).detach().square(), r(2, 5, 1).detach().square()
    tokens = kernelized_chunks.Tokens(r(2, 5, 4), r(2, 5, 4), r(2, 5, 3), weights, floor)
    return tokens, kernelized_chunks.Form(feature_map, causal=True, normalize=True, chunk_size=2)


def both(function, **options):
    """A form of attention, with and without a causal mask."""
    return lambda r: [function(*r.qkv(), causal=causal, **options) for causal in (False, True)]


def decoder(r: Inputs, kind: str) -> decoders.Decoder:
    sizes = {"d_model": 8, "n_heads": 2, "n_kv_heads": 1, "conv_width": 2}
    window = 3 if kind == "softmax" else None
    return r.module(
        lambda: decoders.Decoder(decoders.DecoderConfig(9, attention=kind, window=window, **sizes))
    )


def decoder_state(r: Inputs) -> list[Tensor]:
    """A prompt, a token behind it, beams and their last token, in each form."""
    found = []
    for kind in decoders.KINDS:
        model = decoder(r, kind)
        _, state = model(r.whole(2, 5), return_state=True)
        out, state = model(r.whole(2, 1), state=state, return_state=True)
        found += [out, model(r.whole(3, 1), state=state.index_select(r.whole(3)).detach())]
    return found


def key_value_cache(r: Inputs) -> list[Tensor]:
    _, k, v = r.qkv()
    cache = decoders.KeyValueCache(k, v).append(k, v).append(k, v, window=3)
    with torch.no_grad():
        written = cache.append(k, v).append(k, v)
    return [cache.keys, cache.values, written.keys]


def network(width: int) -> nn.Module:
    return nn.Sequential(
        nn.Linear(3, width), nn.Linear(width, width), nn.LayerNorm(width), nn.Linear(width, 2)
    )


def scaled(r: Inputs) -> nn.Module:
    return mup.parametrize(r.module(lambda: network(8)), network(4))


def muon_step(r: Inputs) -> list[Tensor]:
    model = r.module(lambda: network(8))
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    groups = muon.muon_groups(model)
    # AdamW keeps its count of steps on the CPU, where fake tensors have no values either.
    muon.Muon(groups if r.device == "meta" else groups[:1], lr=0.02).step()
    return list(model.parameters())


def mup_step(r: Inputs) -> list[Tensor]:
    model = scaled(r)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    torch.optim.AdamW(mup.param_groups(model, torch.optim.AdamW, lr=0.1)).step()
    return list(model.parameters())


def in_two_calls(r: Inputs, form: Callable, of_state: Callable) -> list[Tensor]:
    """A prompt and two tokens behind it: outputs, and what `of_state` takes from the state."""
    out, state = form(*r.qkv(), return_state=True)
    more, state = form(*(t[..., :2, :] for t in r.qkv()), initial_state=state, return_state=True)
    return [out, more, *of_state(state.detach()), *of_state(state.index_select(0, r.whole(4)))]


def ridge_state(r: Inputs) -> list[Tensor]:
    q, k, v = r.qkv()
    state = ridge_attention.RidgeState.empty(2, 3, head_dim=4, value_dim=6, penalty=1.0, device=r.device)
    form = partial(ridge_attention.ridge_attention, penalty=1.0, chunk_size=2, decay=0.9)
    return [
        state.update(k, v).read(q),
        state.update(k[..., :1, :], v[..., :1, :]).read(q),
        *in_two_calls(r, form, lambda state: [state.gram, state.inverse]),
    ]


def linear_state(r: Inputs) -> list:
    """A prompt, single tokens behind it, and many more, with and without decay; beams and sums."""
    found = []
    for feature_map in (kernelized.Quadratic(), kernelized.elu_features):
        for fading in (None, r(3)):
            form = partial(
                kernelized.linear_attention,
                feature_map=feature_map,
                causal=True,
                decay=fading,
                return_state=True,
                chunk_size=32,
            )
            _, state = form(*r.qkv())
            out, state = form(*(t[..., :1, :] for t in r.qkv()), initial_state=state)
            many, state = form(*(r(2, 3, 70, n) for n in (4, 4, 6)), initial_state=state)
            beams = state.index_select(0, r.whole(4)).to(dtype=torch.float64).detach()
            found += [out, many, state.u, state.z, beams.sums, state.sums]
    return found


def uses(kind: type[sae.Autoencoder], **options):
    """Code, reconstruction and both forms of the loss."""

    def case(r: Inputs) -> list:
        made, x = r.module(lambda: kind(6, **options)), r(5, 6)
        labels = r.whole(5)
        return [
            made(x),
            made.encode(x),
            made.loss(x, labels=labels),
            made.training_loss(x, labels=labels),
            made.training_loss(x, labels=labels, compute_dtype=torch.bfloat16),
        ]

    return case


def layers(r: Inputs) -> tuple[by_hand.Layer, ...]:
    return by_hand.Layer(r(4, 3), r(4)), by_hand.Layer(r(3, 4), r(3), relu=False)


def hand_pass(r: Inputs) -> tuple:
    made, x = layers(r), r(3, 5)
    return made, by_hand.forward(made, x), x


def sparse_code(r: Inputs) -> list[Tensor]:
    centred, weight, bias = r(5, 6), r(32, 6), r(32)
    code = kernels.topk_code(
        centred.detach(), weight.detach(), bias.detach(), k=3, compute_dtype=torch.float32
    )
    own = {"encoder_weight": weight, "encoder_bias": bias, "decoder_weight": r(6, 32), "decoder_bias": r(6)}
    return [
        *code,
        kernels.sparse_reconstruction(centred.detach(), code, **own, compute_dtype=torch.float32),
        *kernels.relu_l1(centred.detach(), **own, compute_dtype=torch.float32, sites=(2, 4)),
        *kernels.nested_reconstruction(
            centred.detach(), code, **own, prefixes=(5, 9, 32), compute_dtype=torch.float32
        ),
        kernels.residual_reconstruction(
            centred.detach(), centred.detach(), code, **own, compute_dtype=torch.float32
        ),
        *kernels.gated(
            centred.detach(), **own, log_scale=r(32), magnitude_bias=r(32), compute_dtype=torch.float32
        ),
        kernels.site_norms(own["decoder_weight"], (2, 4)),
    ]


def unit_activity(r: Inputs) -> list[Tensor]:
    activity = metrics.UnitActivity()
    activity.update(r(5, 8))
    return [activity.firing_rates(), activity.dead(), activity.dense()]


def regression_inputs(r: Inputs) -> tuple[icr.Prompts, Tensor, Tensor]:
    """Prompts of 3 tasks with 2 features each, and 4 heads."""
    return icr.Prompts(r(5, 7, 6), r(5, 7, 3), r(5, 6), r(5, 3)), r(4, 6), r(4, 3)


def chains(r: Inputs) -> markov_chains.Chains:
    """Four chains of two tokens with the parents 1 and 2."""
    return markov_chains.Chains(r(4, 2, 2, 2).softmax(dim=-1), (1, 2))


TWO_HEADS = induction.Sizes(tokens=2, n_heads=2, reach=2)


def head_inputs(r: Inputs) -> tuple[induction.Examples, induction.Sizes, induction.Weights]:
    """Sequences of two tokens, and three models on each of them at once."""
    data = induction.examples(r.whole(3, 5, 9), TWO_HEADS, dtype=torch.float32)
    return data, TWO_HEADS, induction.Weights(r(3, 2, 2), r(3, 4), r(3))


AUTOENCODERS = {
    sae.ReluSparseAutoencoder: {"l1": 0.1},
    sae.KLSparseAutoencoder: {},
    sae.TopKSparseAutoencoder: {"k": 2},
    sae.BatchTopKSparseAutoencoder: {"k": 2},
    sae.JumpReluSparseAutoencoder: {},
    sae.GroupBiasAdaptedAutoencoder: {"every": 1},
    sae.MatryoshkaTopKSparseAutoencoder: {"k": 2, "aux_k": 3, "dead_after": 1},
    sae.MatryoshkaBatchTopKSparseAutoencoder: {"k": 2, "prefixes": (5, 24)},
    sae.GatedSparseAutoencoder: {"l1": 0.1},
    sae.CrosscoderSparseAutoencoder: {"sites": (2, 4), "k": 2},
    sae.StackedAutoencoder: {"widths": (4, 2), "beta": 0.1, "gamma": 0.1, "n_outputs": 3},
}


def batch_norm_steps(r: Inputs) -> list[Tensor]:
    """Training and evaluation, with a fixed share of the new batch and with the plain average."""
    found = []
    for momentum in (0.1, None):
        layer = r.module(lambda m=momentum: normalisation.BatchNorm(3, momentum=m))
        found += [layer(r(4, 3, 2)), layer(r(4, 3)), layer.eval()(r(4, 3)), layer.running_var]
    return found


def factors(r: Inputs, *, bias: bool = False) -> list[Tensor | float]:
    """A frozen weight, perhaps a bias, A, B and the scale of an adapted layer."""
    return [r(4, 3).detach(), *([r(4)] if bias else []), r(2, 3), r(4, 2), 0.5]


def adapted_layers(r: Inputs) -> list[Tensor]:
    found = []
    for dora in (False, True):
        layer = r.module(
            lambda dora=dora: lora.LoRALinear(nn.Linear(3, 4), rank=2, alpha=4, dora=dora, dropout=0.5)
        )
        layer.base.requires_grad_(requires_grad=False)
        found += [layer(r(5, 3)), layer.eval()(r(5, 3)), layer.weight]
    return found


def samples(r: Inputs) -> margin.Samples:
    return margin.Samples(r(5, 3, 4), r(5, 4), r(5), r(4))


# Called with inputs from the annotations, so that a function that is renamed is all that has to be named here.
FROM_SIGNATURE = """
    architectures.convolution: correlate weight_gradient input_gradient conv2d_by_shifts conv2d
    architectures.graphs: adjacency_matrix max_gradient normalised_edges walk_counts
    architectures.recurrent: min_gru gated_scan affine_scan state_deltas spectral_radius power_norms
    architectures.recurrent: gradient_by_distance
    architectures.normalisation: mean_only_batch_norm mean_only_backward naive_batch_norm
    architectures.normalisation: batch_norm_backward batch_norm expected_dropout_loss
    architectures.normalisation: generalised_ridge dropout_ridge
    architectures.state_space: state_space_loop matrix_powers ssm_kernel rank_one_power
    architectures.state_space: causal_convolution fft_convolution diagonal_kernel_by_powers
    architectures.state_space: diagonal_kernel diagonal_loop diagonal_ssm diagonal_state
    architectures.state_space: diagonal_step discretize hippo_legs hippo_step hippo_state legendre
    architectures.state_space: hippo_reconstruct
    architectures.selective: scan_loop scan_by_doubling selective_step selective_scan_loop
    architectures.selective: selective_scan decayed_step decayed_attention_loop decayed_attention
    architectures.selective_copying: last_flagged
    attention.decay: decay_mask decay_mask_with_past decayed_sums
    attention.feature_maps: elu_features exp_similarity
    attention.fixed_memory: recalled
    attention.random_features: gaussian_kernel relative_variance orthogonal_covariance
    attention.random_features: attention_error
    attention.ridge: ridge_memory cholesky_update delta_rule_loop conjugate_gradient
    attention.recall: associative_recall
    attention.retrieval: miss
    attention.rotary: rope_frequencies interpolated_frequencies ntk_frequencies turns_in
    attention.rotary: yarn_frequencies llama3_frequencies mean_score
    attention.scaled_dot_product: attention_scores attention_weights naive_attention attention
    attention.scaled_dot_product: qk_norm_attention argmax_keys argmax_attention score_moments
    attention.scaled_dot_product: softmax_jacobian entropy
    attention.shapes: merge_leading
    optimization.gradient_descent: least_squares_loss gradient_descent heavy_ball
    optimization.gradient_descent: contraction_factors closed_form
    optimization.gradient_estimators: leave_one_out categorical_gradient categorical_score_gradients
    optimization.gradient_estimators: gumbel_softmax
    optimization.newton_schulz: odd_polynomial newton_schulz_step orthogonality_error
    optimization.ridge: shrinkage augmented_system noisy_copies conditional_normal posterior
    optimization.steepest_descent: primal_norm dual_norm orthogonal_factor constrained_step lp_step
    optimization.steepest_descent: penalized_step penalized_objective
    optimization.stochastic_gradient_descent: stochastic_gradient_descent expected_losses
    representation.pca: gram reconstruction_loss linear_loss linear_gradients
    representation.lora: adapted_linear_by_weight lora_gradients row_norms_by_weight row_norms
    sae.by_hand: squared_error
    parallel: mean_over_ranks gathered largest
    sae.kernels: code_at relu_l1 topk_code even_code largest gated active_counts
    sae.screening: topk_code
    sae.memory: empty converted
    sae.losses: reconstruction bernoulli_kl kl_sparsity squared_error cross_entropy combined
    sae.losses: decoder_weighted_l1
    sae.metrics: firing_rates
    sae.recovery: cosines
    sae.resonance: thresholds resonance_step resonate
    representation.circuits: circuit_gradients composition token_path
    representation.attention_only: head_by_circuits
    representation.head_scores: matching_score
    sae.sparse.topk: largest_of_rows
    theory.markov_chains: generalised_head
    theory.induction_heads: matched_weight
    theory.attention_margin: attention_output exponential_loss pull excess
    theory.restricted_minimax: likelihood risk risk_by_sum risk_slope bayes_rule bayes_risk
    theory.in_context_regression: winners one_head_each shares
    theory.tensor_nuclear_norm: shrink shrink_by_svd
    theory.hawkes: spectral_radius scaled_to stationary_rate rate_by_loops log_likelihood moments
    theory.hawkes: moments_by_rows largest_step
    representation.purification: purification_loss purification_gradient purifying_matrix
    representation.purification: shrink_factors
"""


def listed(text: str) -> list[str]:
    """Return the full names of `module: name name ...` in each line."""
    lines = (line.strip().partition(": ") for line in text.strip().splitlines())
    return [f"{module}.{name}" for module, _, names in lines for name in names.split()]


def found(name: str) -> Callable:
    """Return the function or class of a name without the `course_lib.`."""
    module, _, last = name.rpartition(".")
    return getattr(importlib.import_module(f"course_lib.{module}"), last)


CASES = {
    **{name: partial(call, found(name)) for name in listed(FROM_SIGNATURE)},
    "architectures.convolution.pool_gradient": lambda r: [
        convolution.pool_gradient(r(2, 3, 7, 6), r(2, 3, 3, 2), kernel=3, stride=2, kind=kind)
        for kind in ("max", "average")
    ],
    "architectures.graphs.aggregate_edges": lambda r: [
        graphs.aggregate_edges(r(4, 3), r.whole(2, 7), weight, kind=kind)
        for kind in ("sum", "mean", "max")
        for weight in (None, r(7))
    ],
    "architectures.graphs.batch_graphs": lambda r: list(
        graphs.batch_graphs([r.whole(2, 7), r.whole(2, 3)], [4, 5])
    ),
    "architectures.graphs.readout": lambda r: [
        graphs.readout(r(4, 3), r.whole(4), n_graphs=2, kind=kind) for kind in ("sum", "mean", "max")
    ],
    **{
        f"architectures.recurrent.{form.__name__}": lambda r, form=form, gates=gates: form(
            r(5, 2, 3),
            r(gates * 4, 3),
            r(gates * 4, 4),
            *(r(gates * 4) for _ in range(1 + (gates > 1))),
            r(2, 4),
        )
        for form, gates in (
            (recurrent.rnn_by_steps, 1),
            (recurrent.rnn, 1),
            (recurrent.gru_by_steps, 3),
            (recurrent.gru, 3),
        )
    },
    "architectures.normalisation.BatchNorm": batch_norm_steps,
    "architectures.normalisation.dropout": lambda r: [
        normalisation.dropout(r(4, 3), keep=0.8, rescale=rescale) for rescale in (False, True)
    ],
    "architectures.normalisation.enumerated_dropout_loss": lambda r: normalisation.enumerated_dropout_loss(
        r(2, 2), r(2), r(2), keep=0.8
    ),
    "attention.kernelized.LinearState": linear_state,
    "attention.feature_maps.compute_features": lambda r: feature_maps.compute_features(
        kernelized.elu_features, r(2, 5, 4)
    ),
    "attention.kernelized_chunks.attend_in_chunks": lambda r: list(
        kernelized_chunks.attend_in_chunks(*chunk_inputs(r, kernelized.elu_features), None)
    ),
    "attention.fused_quadratic.attend_by_products": lambda r: fused_quadratic.attend_by_products(
        *chunk_inputs(r, kernelized.Quadratic()), None
    )[0],
    "attention.quadratic_in_parallel.attend_in_parallel": lambda r: quadratic_in_parallel.attend_in_parallel(
        *chunk_inputs(r, kernelized.Quadratic())
    ),
    "attention.feature_maps.Quadratic": lambda r: kernelized.linear_attention(
        *r.qkv(), feature_map=kernelized.Quadratic(), causal=True, chunk_size=2
    ),
    "attention.kernelized.recurrent_step": lambda r: kernelized.recurrent_step(
        None, r(2, 4), r(2, 4), r(2, 6), feature_map=kernelized.elu_features
    ),
    "attention.kernelized.linear_attention": both(
        kernelized.linear_attention, feature_map=kernelized.elu_features, chunk_size=2
    ),
    "attention.random_features.draw_frequencies": lambda r: [
        random_features.draw_frequencies(4, 6, orthogonal=orthogonal, device=r.device)
        for orthogonal in (False, True)
    ],
    "attention.random_features.trigonometric_features": lambda r: random_features.trigonometric_features(
        4, 6, device=r.device
    )(r(5, 4)),
    "attention.random_features.positive_features": lambda r: random_features.positive_features(
        4, 6, device=r.device
    )(r(5, 4)),
    "attention.random_features.random_feature_attention": lambda r: [
        random_features.random_feature_attention(
            *r.qkv(), features=random_features.positive_features(4, 6, device=r.device), causal=causal
        )
        for causal in (False, True)
    ],
    "attention.random_features.RandomFeatureState": lambda r: in_two_calls(
        r,
        partial(
            random_features.random_feature_attention,
            features=random_features.positive_features(4, 6, device=r.device),
            causal=True,
        ),
        lambda state: [state.sums, state.top],
    ),
    "attention.ridge.ridge_attention": lambda r: [
        ridge_attention.ridge_attention(*r.qkv(), penalty=1.0, method=method, causal=causal, chunk_size=2)
        for method in ("chunk", "sherman_morrison", "cholesky", "solve")
        for causal in (False, True)
    ],
    "attention.ridge.RidgeState": ridge_state,
    "attention.ridge.delta_rule": lambda r: [
        ridge_attention.delta_rule(*r.qkv(), step_size=size, chunk_size=2) for size in (0.5, r(2, 3, 5))
    ],
    "attention.ridge.DeltaState": lambda r: in_two_calls(
        r, ridge_attention.delta_rule, lambda state: [state.weights]
    ),
    "attention.layers.KeyValueCache": key_value_cache,
    "attention.layers.DecoderState": decoder_state,
    "attention.layers.Decoder": lambda r: [
        out
        for kind in decoders.KINDS
        for out in (
            decoder(r, kind)(r.whole(2, 5)),
            decoder(r, kind).generate(r.whole(2, 3), max_new_tokens=2),
        )
    ],
    "attention.layers.CausalSelfAttention": lambda r: r.module(
        lambda: decoders.CausalSelfAttention(decoders.DecoderConfig(9, d_model=8))
    )(r(2, 5, 8))[0],
    "attention.recall.copying": lambda r: recall.copying(2, 3, n_tokens=4, device=r.device),
    "attention.rotary.rotary_table": lambda r: rotary.rotary_table(r.whole(3), r(2)),
    "attention.rotary.apply_rotary_by_pairs": lambda r: rotary.apply_rotary_by_pairs(
        r(2, 3, 4), rotary.rotary_table(r.whole(3), r(2)), layout="half"
    ),
    "attention.rotary.rope": lambda r: [
        rotary.rope(r(2, 3, 4), r.whole(3)),
        rotary.rope(r(2, 3, 4), r.whole(3), frequencies=r(2), attention_factor=1.5),
    ],
    "attention.rotary.convert_layout": lambda r: rotary.convert_layout(
        r(8, 3), head_dim=4, source="half", target="interleaved"
    ),
    "attention.shapes.normalize_inputs": lambda r: list(
        shapes.normalize_inputs(
            r(2, 4, 5, 3),
            r(2, 2, 6, 3),
            r(1, 2, 6, 3),
            padding_mask=r(2, 6).detach() > 0,
            enable_gqa=True,
        )
    ),
    "attention.shapes.zero_hidden": lambda r: shapes.zero_hidden(r(4, 5).detach(), r(2, 5, 3), r(2, 5, 6)),
    "attention.shapes.hide_keys": lambda r: list(
        shapes.hide_keys(r(1, 5).detach() > 0, r(2, 5, 4), r(2, 5, 3))
    ),
    "attention.shapes.key_weights": lambda r: shapes.key_weights(r(1, 5).detach() > 0, r(2, 5, 4)),
    "optimization.muon.Muon": muon_step,
    "optimization.newton_schulz.orthogonalize": lambda r: [
        newton_schulz.orthogonalize(r(3, 9), norm=norm, form=form, compute_dtype=torch.bfloat16)
        for norm in ("gram", "frobenius")
        for form in ("plain", "gram")
    ],
    "optimization.newton_schulz.polar_factor": lambda r: newton_schulz.polar_factor(r(3, 4), method="svd"),
    "optimization.ridge.ridge": lambda r: [
        ridge.ridge(r(5, 3), r(5), 1.0, system=system) for system in ("primal", "dual")
    ],
    "optimization.steepest_descent.unit_direction": lambda r: [
        steepest_descent.unit_direction(r(3, 4), norm=norm) for norm in steepest_descent.NORMS
    ],
    "representation.pca.PCA": lambda r: [
        kept := pca.PCA(r(6), r(2, 6), r(2), r(), 5),
        kept.reconstruct(kept.project(r(5, 6))),
        kept.kept(),
    ][1:],
    "representation.pca.shrinkage": lambda r: [pca.shrinkage(r(6), 0.1), pca.shrinkage(r(6), r(6))],
    "representation.pca.critical_point": lambda r: list(pca.critical_point(r(6, 6), [2, 0], 3, 0.1)),
    "representation.lora.LoRALinear": adapted_layers,
    "sae.kernels.nested_reconstruction": sparse_code,
    "sae.metrics.UnitActivity": unit_activity,
    "sae.sparse.group_bias.adapted_bias": lambda r: sparse.adapted_bias(
        r(8), frequency=r(8), target=r(8), largest=r(8), group=r.whole(8), gamma=0.1
    ),
    "representation.circuits.Circuit": circuit_norms,
    "representation.circuits.Heads": lambda r: heads(r).change_basis(r(3, 3), r(3, 3)).take([1, 2]),
    "representation.circuits.composition_scores": lambda r: [circuits.composition_scores(heads(r))],
    "representation.attention_only.attention": lambda r: attention_only.attention(r(2, 5, 6), heads(r)),
    "representation.attention_only.attention_gradients": lambda r: attention_only.attention_gradients(
        r(2, 5, 6), heads(r), r(2, 5, 6)
    ),
    "representation.attention_only.SelfAttention": lambda r: r.module(
        lambda: attention_only.SelfAttention(6, 2)
    )(r(2, 5, 6)),
    "representation.one_place_back.MixedAttention": lambda r: r.module(
        lambda: one_place_back.MixedAttention(8, 2, mixes="k")
    )(r(2, 5, 8)),
    "representation.attention_only.AttentionOnly": lambda r: [
        r.module(lambda: attention_only.AttentionOnly(vocabulary=9, max_tokens=5, d_model=6, n_heads=2))(
            r.whole(2, 5)
        )
    ],
    **{
        f"theory.in_context_regression.{form.__name__}": lambda r, form=form: form(*regression_inputs(r))
        for form in (icr.attention_by_heads, icr.attention, icr.mean_squared_error, icr.gradients)
    },
    "theory.markov_chains.Chains": lambda r: chains(r).next_law(3),
    "theory.markov_chains.window_law": lambda r: markov_chains.window_law(chains(r), 3),
    "theory.markov_chains.next_table": lambda r: markov_chains.next_table(chains(r), 2),
    "theory.markov_chains.oracle": lambda r: markov_chains.oracle(chains(r), r.whole(4, 9)),
    "theory.induction_heads.Sizes": lambda r: [TWO_HEADS.codes(r.device)],
    "theory.induction_heads.Weights": lambda r: [head_inputs(r)[2].selection(), head_inputs(r)[2].own_lag()],
    "theory.induction_heads.attend_by_places": lambda r: induction.attend_by_places(
        r.whole(9), TWO_HEADS, induction.Weights(r(2, 2), r(4), r())
    ),
    "theory.induction_heads.examples": lambda r: [
        induction.examples(r.whole(3, 5, 9), TWO_HEADS, dtype=torch.float32).counts
    ],
    "theory.induction_heads.comparison_terms": lambda r: induction.comparison_terms(TWO_HEADS, r(3, 2, 2)),
    "theory.induction_heads.predict": lambda r: induction.predict(*head_inputs(r)),
    "theory.induction_heads.loss_and_gradients": lambda r: induction.loss_and_gradients(*head_inputs(r))[0],
    "theory.induction_heads.train": lambda r: [
        induction.train(*head_inputs(r), steps=(1, 1, 1), together=together).loss
        for together in (False, True)
    ],
    "theory.induction_heads.growth_rates": lambda r: induction.growth_rates(*head_inputs(r)),
    "theory.attention_margin.constraints": lambda r: [
        margin.constraints(samples(r), diagonal=diagonal) for diagonal in (False, True)
    ],
    "theory.in_context_regression.ridge_answers": lambda r: icr.ridge_answers(
        regression_inputs(r)[0], icr.Tasks(n_tasks=3, block=2, n_examples=7)
    ),
    **{
        f"{kind.__module__.removeprefix('course_lib.')}.{kind.__name__}": uses(kind, **options)
        for kind, options in AUTOENCODERS.items()
    },
    **{
        f"theory.tensor_nuclear_norm.{form.__name__}": lambda r, form=form, rest=rest: [
            form(r(3, 4, 6), *rest, kind) for kind in tensor_nuclear_norm.LOW_RANK
        ]
        for form, rest in (
            (tensor_nuclear_norm.matrices, ()),
            (tensor_nuclear_norm.low_rank_norm, ()),
            (tensor_nuclear_norm.prox, (0.1,)),
        )
    },
    "theory.tensor_nuclear_norm.prox_by_slices": lambda r: [
        tensor_nuclear_norm.prox_by_slices(r(3, 4, 6).detach(), 0.1, "fourier"),
        tensor_nuclear_norm.prox_by_slices(r(3, 4, 6), 0.1, "slices"),
    ],
    "representation.erasure.Eraser": lambda r: erasure.Eraser(
        r(4).detach().double(), r(4, 2).detach().double(), r(2, 4).detach().double()
    ).erase(r(5, 4)),
    "attention.decay.decay_weights": lambda r: [
        decay.decay_weights(given, r(2, 3, 5, 4), causal=True) for given in (0.5, r(3), r(2, 3, 5))
    ],
    "attention.kernelized.kernel_attention": both(
        kernelized.kernel_attention, similarity=kernelized.exp_similarity
    ),
    "attention.kernelized.linear_attention_loop": both(
        kernelized.linear_attention_loop, feature_map=kernelized.elu_features
    ),
    "attention.fixed_memory.write_pairs": lambda r: [
        fixed_memory.write_pairs(r(5, 4), r(5, 3), rule=rule, decay=0.5)
        for rule in ("sums", "decay", "delta")
    ],
    "attention.recall.MemoryDecoders": lambda r: [
        r.module(lambda rule=rule: recall.MemoryDecoders(rule, vocab_size=9, seeds=(0, 1)))(r.whole(2, 3, 5))
        for rule in recall.RULES
    ],
    "attention.recall.recall_decoder": lambda r: r.module(
        lambda: recall.recall_decoder("delta", vocab_size=9)
    )(r.whole(2, 5)),
    "attention.rotary.apply_rotary": lambda r: [
        rotary.apply_rotary(r(2, 3, 4), rotary.rotary_table(r.whole(3), r(2)), layout=layout)
        for layout in rotary.LAYOUTS
    ],
    "optimization.muon.muon_groups": lambda r: muon.muon_groups(r.module(lambda: network(8)))[0]["params"],
    "optimization.mup.parametrize": lambda r: list(scaled(r).parameters()),
    "optimization.mup.param_groups": mup_step,
    "optimization.mup.resume_groups": lambda r: mup.resume_groups(
        model := scaled(r), torch.optim.AdamW(mup.param_groups(model, "adam", lr=0.1)).state_dict()
    )[0]["params"],
    "optimization.mup.layer_outputs": lambda r: mup.layer_outputs(r.module(lambda: network(8)), r(5, 3)),
    "representation.lora.adapted_linear": lambda r: lora.adapted_linear(
        r(2, 5, 3), *factors(r, bias=True), adapter_input=r(2, 5, 3)
    ),
    "sae.by_hand.step": lambda r: by_hand.step(
        made := layers(r), by_hand.backward(made, by_hand.forward(made, r(3, 5)), r(3, 5)), step_size=0.1
    ),
    "sae.by_hand.sparse_backward": lambda r: by_hand.sparse_backward(*hand_pass(r), l1=0.1),
    "sae.kernels.entries_of_product": sparse_code,
    "theory.attention_margin.flow_by_euler": lambda r: margin.flow_by_euler(
        samples(r), [r(4, 4), r(4, 4)], diagonal=False, step=0.1, steps=2
    ),
    "theory.attention_margin.flow_step": lambda r: [
        margin.flow_step(
            [r(*shape) for _ in range(margin.PARAMETERS[kind])],
            margin.constraints(samples(r), diagonal=len(shape) == 1),
            parametrisation=kind,
        )
        for kind, shape in (("W", (4,)), ("kq", (4,)), ("W", (4, 4)), ("KQ", (4, 4)))
    ],
    "theory.hawkes.largest_weight": lambda r: [
        hawkes.largest_weight(hawkes.moments(r(9, 3), 4), kind) for kind in hawkes.PENALTIES[1:]
    ],
    "theory.hawkes.fista_step": lambda r: hawkes.fista_step(
        r(3, 3, 4),
        r(3, 3, 4),
        2.0,
        hawkes.moments(r(9, 3), 4),
        step=r(),
        weight=r(),
        penalty="fourier",
    )[:2],
}

# What makes a tensor may make it on the wrong device: such a function is tried above, or stands here with the reason.
MAKERS = {
    *(
        "arange",
        "as_tensor",
        "empty",
        "eye",
        "fftfreq",
        "full",
        "linspace",
        "logspace",
        "normal",
        "ones",
        "rand",
    ),
    *(
        "randint",
        "randn",
        "randperm",
        "rfftfreq",
        "tensor",
        "tril_indices",
        "triu_indices",
        "zeros",
        "cpu",
        "numpy",
    ),
}
EXCEPTIONS = {
    "takes and returns Python numbers, text or functions, no tensor": """
        architectures.selective_copying: parameter_count units_for
        optimization.newton_schulz: minimax_quintic minimax_composition polar_express
        representation.lora: adapt
        sae.by_hand: matrix
        representation.variance: unit_share
        representation.circuits: reads
        sae.memory: Memory
    """,
    "is for processors with integer products, and says so": """
        sae.screening: screened
    """,
    "is for a GPU or Triton's interpreter; tests/attention/test_quadratic_in_parallel.py tries it": """
        attention.quadratic_triton: write read
    """,
    "makes its tensors from numbers alone, on the CPU": """
        attention.fixed_memory: expected_recall
        attention.rotary: layout_order
        optimization.multiplicative_noise: gaussian_run_limit tail_exponent
        optimization.ridge: moments three_point_noise
        optimization.stochastic_gradient_descent: noisy_equations
        sae.planted: log_spaced_frequencies
        theory.in_context_regression: zero_sum_heads
        theory.restricted_minimax: two_point classical_rule prior_by_updates minimax
        theory.restricted_minimax: minimax_by_cones
        theory.induction_heads: start
    """,
    "sorts edges into sparse matrices, once and in no loop": """
        architectures.graphs: Graph gcn_graph
    """,
    "draws from a generator, on whose device the result is": """
        architectures.convolution: correlated_images
        architectures.selective_copying: flagged_texts CopyNetworks train_to_copy copy_errors
        attention.fixed_memory: unit_vectors
        attention.retrieval: unit_tokens Retrieval learn_to_retrieve
        attention.trained_through: texts error fresh_error learn_to_fetch gradient
        representation.bottleneck: Bottleneck quadratic_features fit_bottleneck cluster_code
        optimization.gradient_estimators: gumbel_noise
        optimization.multiplicative_noise: carrying_noise
        optimization.ridge: fit_noisy_rows
        optimization.stochastic_gradient_descent: draw_indices
        representation.attention_only: repeated_sequences planted_induction
        representation.one_place_back: network train weights
        sae.planted: PlantedDictionary
        sae.resonance: random_neurons
        theory.attention_margin: planted_samples random_samples
        theory.in_context_regression: Tasks start
        theory.markov_chains: random_chains draw_tokens
    """,
    "measures its input: what it returns is a Python number": """
        optimization.ridge: matching_penalty
        optimization.gradient_descent: sharpness
        optimization.ridge: second_moment_step_limit
        optimization.stochastic_gradient_descent: exact_rate
        representation.pca: falling_rates
        sae.metrics: evaluate
        sae.recovery: recovery absorption agreement
        theory.restricted_minimax: worst_case
    """,
    "refuses an input by its values, once and in no loop": """
        representation.erasure: ErasureMoments fit_eraser probe_r2
        representation.pca: RunningMoments pca
        representation.purification: Purifier
        optimization.ridge: typical_factor
        theory.hawkes: delayed_kernel fit fit_chosen
        optimization.steepest_descent: smoothness
        theory.attention_margin: frobenius_svm l1_svm nuclear_svm
        theory.restricted_minimax: prior_on_grid
    """,
    "goes on until all have arrived, and asks in every fiftieth step": """
        theory.attention_margin: gradient_flow
    """,
    "works on the CPU, after training: tables for a report, by sorting and by scipy": """
        sae.recovery: assign
    """,
    "takes and returns numpy and scipy data for a solver on the CPU": """
        theory.sparse_socp: QCQP Relaxation with_apex symmetric random_problem lattice_edges
        theory.sparse_socp: wrong_signs lattice bipartite_edges signed_graph cycle_edges all_pairs
        theory.sparse_socp: switching least_minor socp socp_by_cuts sdp local_minimum least_by_signs
        theory.power_flow: Network powers_at flow_socp flow_sdp flow_local tree_voltages seven_buses
        theory.frustration: Guests grid complete best_seating fewest_unhappy rules bound_by_rules
        theory.frustration: every_square odd_squares_only every_cycle semidefinite_bound seating_of
        theory.frustration: everybody fewest_row_by_row annealed
    """,
    "prepares a model for training or use, once and in no loop": """
        representation.lora: inject
    """,
    "reads files, or tables of any kind, on the way to the device": """
        representation.peft_format: save
        sae.batches: Batches
        sae.checkpoints: write latest
        sae.io: save
        sae.sae_lens_format: export
        sae.train: train
        sae.greedy: train_greedy
    """,
    "is a base class or a tuple of results of what is in the table": """
        sae.autoencoder: Autoencoder
        theory.attention_margin: Constraints
        theory.restricted_minimax: Solution
    """,
}


def makes_tensors(definition: ast.AST, own: dict[str, ast.AST], passed: frozenset = frozenset()) -> bool:
    """Return whether a function, or one that it calls in its module, makes a tensor or brings one to the CPU."""
    for node in ast.walk(definition):
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute) and node.func.attr in MAKERS:
                return True
            name = node.func.id if isinstance(node.func, ast.Name) else ""
            if name in own.keys() - passed and makes_tensors(own[name], own, passed | {name}):
                return True
    return False


def test_what_makes_tensors_is_tried_or_has_a_reason():
    makers = set()
    for package in ("architectures", "attention", "optimization", "representation", "sae", "theory"):
        root = importlib.import_module(f"course_lib.{package}")
        for info in pkgutil.walk_packages(root.__path__, f"{package}."):
            found = importlib.util.find_spec(f"course_lib.{info.name}")
            body = ast.parse(Path(found.origin).read_text(encoding="utf-8")).body
            own = {node.name: node for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
            makers |= {
                f"{info.name}.{name}" for name in own if name[0] != "_" and makes_tensors(own[name], own)
            }
    excepted = {name for names in EXCEPTIONS.values() for name in listed(names)}
    assert makers - set(CASES) == excepted


def tensors(value: object) -> list[Tensor]:
    """All tensors in nested results."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    elif is_dataclass(value):
        value = [getattr(value, field.name) for field in fields(value)]
    return [t for part in value for t in tensors(part)] if isinstance(value, list | tuple) else []


# Torch built without CUDA cannot index a tensor that claims to be on it. Another device that has neither hardware nor
# kernels here stands in for it: what counts is that it is not the CPU.
GPU = "cuda" if torch.backends.cuda.is_built() else "lazy:0"
# What runs autograd itself needs the device to be there: torch asks the driver for its context.
OWN_BACKWARD = {"theory.attention_margin.flow_by_euler"}


@pytest.mark.parametrize("name", CASES)
def test_everything_stays_on_the_device(name):
    """On meta forward and backward, on a GPU that is claimed forward."""
    outputs = tensors([CASES[name](Inputs("meta", learn=True))])
    assert outputs
    assert {t.device.type for t in outputs} == {"meta"}
    for output in outputs:
        if output.grad_fn is not None:
            output.abs().sum().backward(retain_graph=True)
    if GPU != "cuda" or name not in OWN_BACKWARD:
        with FakeTensorMode(), torch.no_grad():
            outputs = tensors([CASES[name](Inputs(GPU, learn=False))])
        assert {t.device.type for t in outputs} == {torch.device(GPU).type}


@pytest.mark.parametrize("kind", AUTOENCODERS)
@pytest.mark.parametrize("unit_norm", [False, True])
def test_a_training_step_reads_nothing_back(kind, unit_norm, monkeypatch):
    """The step of `train` itself: batch, loss, backward, optimiser, and what each kind does before and after."""
    adam = torch.optim.Adam
    # Meta has no fused one.
    monkeypatch.setattr(torch.optim, "Adam", lambda p, lr, betas, fused: adam(p, lr=lr, betas=betas))
    free = issubclass(kind, sae.SparseAutoencoder) and kind is not sae.GroupBiasAdaptedAutoencoder
    config = sae.TrainConfig(
        steps=9,
        batch_size=5,
        unit_norm_decoder=unit_norm and free,
        revive_every=8 * free,
        precision="bfloat16",
    )
    run = importlib.import_module("course_lib.sae.train")._Run(
        Inputs("meta", learn=True).module(lambda: kind(6, **AUTOENCODERS[kind])),
        torch.randn(20, 6),
        config,
        generator=torch.Generator().manual_seed(0),
        labels=torch.zeros(20, dtype=torch.int64),
    )
    run._watch()
    assert run.step(0) is None
    assert run.step(1) is None
    assert all(value.device.type == "meta" for value in run.pending[1].values())
