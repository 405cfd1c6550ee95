"""Everything runs where its inputs are, and no training step waits for a number: asked without a GPU.

Every public name of `architectures`, `attention`, `optimization`, `representation`, `sae` and `theory` is called on the meta
device, forward and backward, and under `FakeTensorMode` on tensors that claim to be on a GPU, forward. Neither holds
numbers. What mixes devices, or reads a value back (`item`, `nonzero`, the truth value of a tensor), raises there; on a
GPU it would fail, or stop the queue of kernels at every step.
"""

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily

from course_lib import parallel, sae
from course_lib.architectures import convolution, graphs, normalisation, recurrent, selective, state_space
from course_lib.attention import (
    decay,
    feature_maps,
    fused_quadratic,
    kernelized,
    kernelized_chunks,
    random_features,
    recall,
    rotary,
    scaled_dot_product,
    shapes,
)
from course_lib.attention import layers as decoders
from course_lib.attention import ridge as ridge_attention
from course_lib.optimization import (
    gradient_descent,
    gradient_estimators,
    muon,
    mup,
    newton_schulz,
    ridge,
    steepest_descent,
)
from course_lib.optimization import stochastic_gradient_descent as sgd
from course_lib.representation import attention_only, circuits, erasure, head_scores, lora, pca, purification
from course_lib.sae import by_hand, kernels, losses, memory, metrics, recovery, resonance, screening, sparse
from course_lib.theory import attention_margin as margin
from course_lib.theory import hawkes, markov_chains, tensor_nuclear_norm
from course_lib.theory import in_context_regression as icr
from course_lib.theory import induction_heads as induction
from course_lib.theory import restricted_minimax as restricted


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


def code_at(r: Inputs) -> list[Tensor]:
    pre = r(5, 8).detach()
    places, last = parallel.largest(pre, 6)
    return [*kernels.code_at(pre, places, dtype=torch.float32), last]


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


def poles(r: Inputs) -> tuple[Tensor, Tensor]:
    """Poles of 3 channels and their weights."""
    return torch.complex(r(3, 2), r(3, 2)), torch.complex(r(3, 2), r(3, 2))


def selective_inputs(r: Inputs, *time: int) -> list[Tensor]:
    return [r(2, *time, 3), r(2, *time, 3), r(3, 4), r(2, *time, 4), r(2, *time, 4), r(3)]


def decayed_inputs(r: Inputs, *time: int) -> list[Tensor]:
    return [r(2, *time, 3), r(2, *time, 3), r(2, *time, 4), r(2, *time)]


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


CASES = {
    # architectures
    "architectures.convolution.correlate": lambda r: convolution.correlate(r(5, 4), r(2, 3)),
    "architectures.convolution.weight_gradient": lambda r: convolution.weight_gradient(r(5, 4), r(4, 2)),
    "architectures.convolution.input_gradient": lambda r: convolution.input_gradient(r(4, 2), r(2, 3)),
    "architectures.convolution.conv2d_by_shifts": lambda r: convolution.conv2d_by_shifts(
        r(2, 3, 7, 6), r(4, 3, 3, 2), r(4), stride=2, padding=1
    ),
    "architectures.convolution.conv2d": lambda r: [
        convolution.conv2d(r(2, 3, 7, 6), r(4, 3, 3, 2), r(4), stride=stride, padding=1, dilation=2)
        for stride in (1, 2)
    ],
    "architectures.convolution.depthwise_conv2d": lambda r: convolution.depthwise_conv2d(
        r(2, 3, 7, 6), r(3, 1, 5, 5), padding=2
    ),
    "architectures.convolution.pool_gradient": lambda r: [
        convolution.pool_gradient(r(2, 3, 7, 6), r(2, 3, 3, 2), kernel=3, stride=2, kind=kind)
        for kind in ("max", "average")
    ],
    "architectures.graphs.adjacency_matrix": lambda r: graphs.adjacency_matrix(
        r.whole(2, 7), r(7), n_nodes=4
    ),
    "architectures.graphs.aggregate_edges": lambda r: [
        graphs.aggregate_edges(r(4, 3), r.whole(2, 7), weight, kind=kind)
        for kind in ("sum", "mean", "max")
        for weight in (None, r(7))
    ],
    "architectures.graphs.max_gradient": lambda r: graphs.max_gradient(r(4, 3), r(4, 3), r.whole(2, 7)),
    "architectures.graphs.normalised_edges": lambda r: list(
        graphs.normalised_edges(r.whole(2, 7), r(7), n_nodes=4)
    ),
    "architectures.graphs.batch_graphs": lambda r: list(
        graphs.batch_graphs([r.whole(2, 7), r.whole(2, 3)], [4, 5])
    ),
    "architectures.graphs.readout": lambda r: [
        graphs.readout(r(4, 3), r.whole(4), n_graphs=2, kind=kind) for kind in ("sum", "mean", "max")
    ],
    "architectures.graphs.walk_counts": lambda r: graphs.walk_counts(r(4, 4), 3),
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
    "architectures.recurrent.min_gru": lambda r: recurrent.min_gru(r(17, 2, 3), r(4, 3), r(4, 3), r(4), r(4)),
    "architectures.recurrent.gated_scan": lambda r: recurrent.gated_scan(r(17, 2, 4), r(17, 2, 4), r(2, 4)),
    "architectures.recurrent.affine_scan": lambda r: recurrent.affine_scan(r(5, 4, 4), r(5, 4)),
    "architectures.recurrent.state_deltas": lambda r: recurrent.state_deltas(r(5, 2, 4), r(5, 2, 4), r(4, 4)),
    "architectures.recurrent.spectral_radius": lambda r: recurrent.spectral_radius(r(4, 4)),
    "architectures.recurrent.power_norms": lambda r: recurrent.power_norms(r(4, 4), 3),
    "architectures.recurrent.gradient_by_distance": lambda r: recurrent.gradient_by_distance(
        r(5, 2, 4), r(4, 4)
    ),
    "architectures.normalisation.mean_only_batch_norm": lambda r: normalisation.mean_only_batch_norm(
        r(4, 3, 2), r(3), r(3)
    ),
    "architectures.normalisation.mean_only_backward": lambda r: normalisation.mean_only_backward(
        r(4, 3), r(3)
    ),
    "architectures.normalisation.naive_batch_norm": lambda r: normalisation.naive_batch_norm(
        r(4, 3, 2), r(3), r(3)
    ),
    "architectures.normalisation.batch_norm_backward": lambda r: list(
        normalisation.batch_norm_backward(r(4, 3, 2), r(4, 3, 2), r(3))
    ),
    "architectures.normalisation.batch_norm": lambda r: normalisation.batch_norm(
        r(4, 3, 2), r(3).detach(), r(3).detach(), r(3), r(3), training=True
    ),
    "architectures.normalisation.BatchNorm": batch_norm_steps,
    "architectures.normalisation.dropout": lambda r: [
        normalisation.dropout(r(4, 3), keep=0.8, rescale=rescale) for rescale in (False, True)
    ],
    "architectures.normalisation.enumerated_dropout_loss": lambda r: normalisation.enumerated_dropout_loss(
        r(2, 2), r(2), r(2), keep=0.8
    ),
    "architectures.normalisation.expected_dropout_loss": lambda r: normalisation.expected_dropout_loss(
        r(5, 3), r(5), r(3), keep=0.8
    ),
    "architectures.normalisation.generalised_ridge": lambda r: normalisation.generalised_ridge(
        r(5, 3), r(5), r(3)
    ),
    "architectures.normalisation.dropout_ridge": lambda r: normalisation.dropout_ridge(
        r(5, 3), r(5), keep=0.8
    ),
    "architectures.state_space.state_space_loop": lambda r: state_space.state_space_loop(
        r(5), r(2, 2), r(2), r(2)
    ),
    "architectures.state_space.matrix_powers": lambda r: state_space.matrix_powers(r(2, 2), 5),
    "architectures.state_space.ssm_kernel": lambda r: state_space.ssm_kernel(r(2, 2), r(2), r(2), length=5),
    "architectures.state_space.rank_one_power": lambda r: state_space.rank_one_power(r(3), 4),
    "architectures.state_space.causal_convolution": lambda r: state_space.causal_convolution(
        r(2, 5, 3), r(3, 4)
    ),
    "architectures.state_space.fft_convolution": lambda r: state_space.fft_convolution(r(2, 5, 3), r(3, 4)),
    "architectures.state_space.diagonal_kernel_by_powers": lambda r: state_space.diagonal_kernel_by_powers(
        *poles(r), 5
    ),
    "architectures.state_space.diagonal_kernel": lambda r: state_space.diagonal_kernel(*poles(r), 5),
    "architectures.state_space.diagonal_loop": lambda r: state_space.diagonal_loop(
        r(2, 5, 3), *poles(r), r(3)
    ),
    "architectures.state_space.diagonal_ssm": lambda r: state_space.diagonal_ssm(
        r(2, 5, 3), *poles(r), r(3), state=torch.complex(r(2, 3, 2), r(2, 3, 2))
    ),
    "architectures.state_space.diagonal_state": lambda r: state_space.diagonal_state(
        r(2, 5, 3), poles(r)[0], state=torch.complex(r(2, 3, 2), r(2, 3, 2))
    ),
    "architectures.state_space.diagonal_step": lambda r: list(
        state_space.diagonal_step(None, r(2, 3), *poles(r), r(3))
    ),
    "architectures.state_space.discretize": lambda r: [
        part for method in state_space.METHODS for part in state_space.discretize(r(3), r(3), method=method)
    ],
    "architectures.state_space.hippo_legs": lambda r: list(
        state_space.hippo_legs(3, dtype=torch.float32, device=r.device)
    ),
    "architectures.state_space.hippo_step": lambda r: state_space.hippo_step(r(3, 2), r(2), 4),
    "architectures.state_space.hippo_state": lambda r: state_space.hippo_state(r(5, 2), 3),
    "architectures.state_space.legendre": lambda r: state_space.legendre(3, r(5)),
    "architectures.state_space.hippo_reconstruct": lambda r: state_space.hippo_reconstruct(r(3, 2), r(5)),
    "architectures.selective.scan_loop": lambda r: selective.scan_loop(r(5, 2), r(5, 2)),
    "architectures.selective.scan_by_doubling": lambda r: selective.scan_by_doubling(r(5, 2), r(5, 2)),
    "architectures.selective.selective_step": lambda r: list(
        selective.selective_step(r(2, 3, 4), *selective_inputs(r))
    ),
    "architectures.selective.selective_scan_loop": lambda r: selective.selective_scan_loop(
        *selective_inputs(r, 5)
    ),
    "architectures.selective.selective_scan": lambda r: list(
        selective.selective_scan(*selective_inputs(r, 5), chunk_size=2)
    ),
    "architectures.selective.decayed_step": lambda r: list(
        selective.decayed_step(r(2, 3, 4), *decayed_inputs(r))
    ),
    "architectures.selective.decayed_attention_loop": lambda r: selective.decayed_attention_loop(
        *decayed_inputs(r, 5)
    ),
    "architectures.selective.decayed_attention": lambda r: list(
        selective.decayed_attention(*decayed_inputs(r, 5), chunk_size=2)
    ),
    # attention
    "attention.decay.decay_mask": lambda r: decay.decay_mask(r(2, 5)),
    "attention.decay.decay_mask_with_past": lambda r: decay.decay_mask_with_past(r(2, 5)),
    "attention.decay.decay_weights": lambda r: [
        decay.decay_weights(given, r(2, 3, 5, 4), causal=True) for given in (0.5, r(3), r(2, 3, 5))
    ],
    "attention.decay.decayed_sums": lambda r: list(
        decay.decayed_sums(*decayed_inputs(r, 5), r(2, 3, 4), size=2)
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
    "attention.feature_maps.Quadratic": lambda r: kernelized.linear_attention(
        *r.qkv(), feature_map=kernelized.Quadratic(), causal=True, chunk_size=2
    ),
    "attention.feature_maps.elu_features": lambda r: kernelized.elu_features(r(5, 4)),
    "attention.feature_maps.exp_similarity": lambda r: kernelized.exp_similarity(*r.qkv()[:2]),
    "attention.kernelized.kernel_attention": both(
        kernelized.kernel_attention, similarity=kernelized.exp_similarity
    ),
    "attention.kernelized.recurrent_step": lambda r: kernelized.recurrent_step(
        None, r(2, 4), r(2, 4), r(2, 6), feature_map=kernelized.elu_features
    ),
    "attention.kernelized.linear_attention_loop": both(
        kernelized.linear_attention_loop, feature_map=kernelized.elu_features
    ),
    "attention.kernelized.linear_attention": both(
        kernelized.linear_attention, feature_map=kernelized.elu_features, chunk_size=2
    ),
    "attention.random_features.gaussian_kernel": lambda r: random_features.gaussian_kernel(*r.qkv()[:2]),
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
    "attention.random_features.relative_variance": lambda r: random_features.relative_variance(
        *r.qkv()[:2], kind="positive"
    ),
    "attention.random_features.orthogonal_covariance": lambda r: random_features.orthogonal_covariance(
        r(3), head_dim=4
    ),
    "attention.random_features.attention_error": lambda r: random_features.attention_error(
        *r.qkv(), kind="trigonometric", n_frequencies=3
    ),
    "attention.ridge.ridge_memory": lambda r: ridge_attention.ridge_memory(r(5, 4), r(5, 2), penalty=1.0),
    "attention.ridge.cholesky_update": lambda r: ridge_attention.cholesky_update(r(4, 4), r(4)),
    "attention.ridge.ridge_attention": lambda r: [
        ridge_attention.ridge_attention(*r.qkv(), penalty=1.0, method=method, causal=causal, chunk_size=2)
        for method in ("chunk", "sherman_morrison", "cholesky", "solve")
        for causal in (False, True)
    ],
    "attention.ridge.RidgeState": ridge_state,
    "attention.ridge.delta_rule_loop": lambda r: ridge_attention.delta_rule_loop(*r.qkv()),
    "attention.ridge.delta_rule": lambda r: [
        ridge_attention.delta_rule(*r.qkv(), step_size=size, chunk_size=2) for size in (0.5, r(2, 3, 5))
    ],
    "attention.ridge.DeltaState": lambda r: in_two_calls(
        r, ridge_attention.delta_rule, lambda state: [state.weights]
    ),
    "attention.ridge.conjugate_gradient": lambda r: ridge_attention.conjugate_gradient(
        r(4, 4), r(4, 2), steps=2
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
    "attention.recall.associative_recall": lambda r: [
        *recall.associative_recall(2, 3, n_keys=4, device=r.device),
        *recall.associative_recall(2, 3, n_keys=2, rewritten=True, device=r.device),
    ],
    "attention.recall.copying": lambda r: recall.copying(2, 3, n_tokens=4, device=r.device),
    "attention.recall.recall_decoder": lambda r: r.module(
        lambda: recall.recall_decoder("delta", vocab_size=9)
    )(r.whole(2, 5)),
    "attention.rotary.rope_frequencies": lambda r: rotary.rope_frequencies(4, device=r.device),
    "attention.rotary.interpolated_frequencies": lambda r: rotary.interpolated_frequencies(r(2), scale=2),
    "attention.rotary.ntk_frequencies": lambda r: rotary.ntk_frequencies(4, scale=2, device=r.device),
    "attention.rotary.turns_in": lambda r: rotary.turns_in(r(2), 64),
    "attention.rotary.yarn_frequencies": lambda r: rotary.yarn_frequencies(
        4, scale=2, trained_length=64, device=r.device
    ),
    "attention.rotary.llama3_frequencies": lambda r: rotary.llama3_frequencies(r(2), scale=2),
    "attention.rotary.mean_score": lambda r: rotary.mean_score(r.whole(3), r(2)),
    "attention.rotary.rotary_table": lambda r: rotary.rotary_table(r.whole(3), r(2)),
    "attention.rotary.apply_rotary": lambda r: [
        rotary.apply_rotary(r(2, 3, 4), rotary.rotary_table(r.whole(3), r(2)), layout=layout)
        for layout in rotary.LAYOUTS
    ],
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
    "attention.scaled_dot_product.attention_scores": lambda r: scaled_dot_product.attention_scores(
        *r.qkv()[:2], causal=True, scale=r(3, 1, 1)
    ),
    "attention.scaled_dot_product.attention_weights": lambda r: scaled_dot_product.attention_weights(
        *r.qkv()[:2], causal=True
    ),
    "attention.scaled_dot_product.naive_attention": both(scaled_dot_product.naive_attention),
    "attention.scaled_dot_product.attention": both(scaled_dot_product.attention),
    "attention.scaled_dot_product.qk_norm_attention": both(scaled_dot_product.qk_norm_attention, scale=2.0),
    "attention.scaled_dot_product.argmax_keys": lambda r: scaled_dot_product.argmax_keys(r(5, 4)),
    "attention.scaled_dot_product.argmax_attention": both(
        scaled_dot_product.argmax_attention, straight_through=True
    ),
    "attention.scaled_dot_product.score_moments": lambda r: scaled_dot_product.score_moments(r(4), std=1.0),
    "attention.scaled_dot_product.softmax_jacobian": lambda r: scaled_dot_product.softmax_jacobian(r(2, 4)),
    "attention.scaled_dot_product.entropy": lambda r: scaled_dot_product.entropy(r(2, 4)),
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
    "attention.shapes.merge_leading": lambda r: shapes.merge_leading(r(2, 3, 5, 4)),
    # optimization
    "optimization.gradient_descent.least_squares_loss": lambda r: gradient_descent.least_squares_loss(
        r(5, 3), r(5), r(3)
    ),
    "optimization.gradient_descent.gradient_descent": lambda r: gradient_descent.gradient_descent(
        r(5, 3), r(5), r(3), step_size=0.1, steps=2
    ),
    "optimization.gradient_descent.heavy_ball": lambda r: gradient_descent.heavy_ball(
        r(5, 3), r(5), r(3), step_size=0.1, momentum=0.5, steps=2
    ),
    "optimization.gradient_descent.contraction_factors": lambda r: gradient_descent.contraction_factors(
        r(3), step_size=0.1
    ),
    "optimization.gradient_descent.closed_form": lambda r: gradient_descent.closed_form(
        r(3), r(3), r(3), step_size=0.1, steps=2
    ),
    "optimization.gradient_estimators.score_gradients": lambda r: gradient_estimators.score_gradients(
        lambda x: x.sum(dim=1), r(3), std=1.0, noise=r(5, 3)
    ),
    "optimization.gradient_estimators.pathwise_gradients": lambda r: gradient_estimators.pathwise_gradients(
        lambda x: x.square().sum(dim=1), r(3), std=1.0, noise=r(5, 3)
    ),
    "optimization.gradient_estimators.leave_one_out": lambda r: gradient_estimators.leave_one_out(r(5)),
    "optimization.gradient_estimators.categorical_gradient": lambda r: (
        gradient_estimators.categorical_gradient(r(4), r(4))
    ),
    "optimization.gradient_estimators.categorical_score_gradients": lambda r: (
        gradient_estimators.categorical_score_gradients(r(4), r(5), drawn=r.whole(5))
    ),
    "optimization.gradient_estimators.gumbel_softmax": lambda r: gradient_estimators.gumbel_softmax(
        r(4), r(5, 4), temperature=0.5
    ),
    "optimization.muon.muon_groups": lambda r: muon.muon_groups(r.module(lambda: network(8)))[0]["params"],
    "optimization.muon.Muon": muon_step,
    "optimization.mup.parametrize": lambda r: list(scaled(r).parameters()),
    "optimization.mup.param_groups": mup_step,
    "optimization.mup.resume_groups": lambda r: mup.resume_groups(
        model := scaled(r), torch.optim.AdamW(mup.param_groups(model, "adam", lr=0.1)).state_dict()
    )[0]["params"],
    "optimization.mup.layer_outputs": lambda r: mup.layer_outputs(r.module(lambda: network(8)), r(5, 3)),
    "optimization.newton_schulz.odd_polynomial": lambda r: newton_schulz.odd_polynomial(
        r(3), newton_schulz.KELLER
    ),
    "optimization.newton_schulz.newton_schulz_step": lambda r: newton_schulz.newton_schulz_step(
        r(3, 4), newton_schulz.CUBIC
    ),
    "optimization.newton_schulz.orthogonality_error": lambda r: newton_schulz.orthogonality_error(r(3, 4)),
    "optimization.newton_schulz.orthogonalize": lambda r: [
        newton_schulz.orthogonalize(r(3, 9), norm=norm, form=form, compute_dtype=torch.bfloat16)
        for norm in ("gram", "frobenius")
        for form in ("plain", "gram")
    ],
    "optimization.newton_schulz.polar_factor": lambda r: newton_schulz.polar_factor(r(3, 4), method="svd"),
    "optimization.ridge.ridge": lambda r: [
        ridge.ridge(r(5, 3), r(5), 1.0, system=system) for system in ("primal", "dual")
    ],
    "optimization.ridge.shrinkage": lambda r: ridge.shrinkage(r(3), 1.0),
    "optimization.ridge.augmented_system": lambda r: ridge.augmented_system(r(5, 3), r(5), 1.0),
    "optimization.ridge.noisy_copies": lambda r: ridge.noisy_copies(r(5, 3), noise=0.1),
    "optimization.ridge.noisy_sgd": lambda r: ridge.noisy_sgd(1.0, 1.0, 0.0, r(3, 4), step_size=0.1),
    "optimization.ridge.conditional_normal": lambda r: ridge.conditional_normal(
        r(3), r(2), r(3, 3), r(3, 2), r(2, 2), r(2)
    ),
    "optimization.ridge.posterior": lambda r: ridge.posterior(r(5, 3), r(5), noise_variance=1.0),
    "optimization.steepest_descent.primal_norm": lambda r: [
        steepest_descent.primal_norm(r(3, 4), norm=norm) for norm in steepest_descent.NORMS
    ],
    "optimization.steepest_descent.dual_norm": lambda r: [
        steepest_descent.dual_norm(r(3, 4), norm=norm) for norm in steepest_descent.NORMS
    ],
    "optimization.steepest_descent.orthogonal_factor": lambda r: steepest_descent.orthogonal_factor(r(3, 4)),
    "optimization.steepest_descent.unit_direction": lambda r: [
        steepest_descent.unit_direction(r(3, 4), norm=norm) for norm in steepest_descent.NORMS
    ],
    "optimization.steepest_descent.constrained_step": lambda r: steepest_descent.constrained_step(
        r(3, 4), norm="l2", radius=1.0
    ),
    "optimization.steepest_descent.lp_step": lambda r: steepest_descent.lp_step(r(3), p=3, radius=1.0),
    "optimization.steepest_descent.penalized_step": lambda r: steepest_descent.penalized_step(
        r(3, 4), norm="l2", alpha=1.0
    ),
    "optimization.steepest_descent.penalized_objective": lambda r: steepest_descent.penalized_objective(
        r(3, 4), r(3, 4), norm="linf", alpha=1.0
    ),
    "optimization.stochastic_gradient_descent.stochastic_gradient_descent": lambda r: (
        sgd.stochastic_gradient_descent(r(5, 3), r(5), r(3), r.whole(2, 4, 1), step_size=0.1)
    ),
    "optimization.stochastic_gradient_descent.expected_losses": lambda r: sgd.expected_losses(
        r(5, 3), r(5), r(3), step_size=0.1, steps=2
    ),
    # representation
    "representation.pca.gram": lambda r: pca.gram(r(5, 4)),
    "representation.pca.PCA": lambda r: [
        kept := pca.PCA(r(6), r(2, 6), r(2), r(), 5),
        kept.reconstruct(kept.project(r(5, 6))),
        kept.kept(),
    ][1:],
    "representation.pca.reconstruction_loss": lambda r: pca.reconstruction_loss(r(2, 6), r(6, 2), r(5, 6)),
    "representation.pca.linear_loss": lambda r: pca.linear_loss(r(2, 6), r(6, 2), r(6, 6), r(2)),
    "representation.pca.linear_gradients": lambda r: list(
        pca.linear_gradients(r(2, 6), r(6, 2), r(6, 6), 0.1)
    ),
    "representation.pca.shrinkage": lambda r: [pca.shrinkage(r(6), 0.1), pca.shrinkage(r(6), r(6))],
    "representation.pca.critical_point": lambda r: list(pca.critical_point(r(6, 6), [2, 0], 3, 0.1)),
    "representation.lora.adapted_linear_by_weight": lambda r: lora.adapted_linear_by_weight(
        r(5, 3), *factors(r, bias=True)
    ),
    "representation.lora.lora_gradients": lambda r: list(lora.lora_gradients(r(5, 4), r(5, 3), *factors(r))),
    "representation.lora.row_norms_by_weight": lambda r: lora.row_norms_by_weight(*factors(r)),
    "representation.lora.adapted_linear": lambda r: lora.adapted_linear(
        r(2, 5, 3), *factors(r, bias=True), adapter_input=r(2, 5, 3)
    ),
    "representation.lora.row_norms": lambda r: lora.row_norms(*factors(r)),
    "representation.lora.LoRALinear": adapted_layers,
    # sae
    "sae.autoencoder.linear": lambda r: list(
        r.module(lambda: sae.autoencoder.linear(3, 2, None)).parameters()
    ),
    "sae.by_hand.forward": lambda r: by_hand.forward(layers(r), r(3, 5)),
    "sae.by_hand.squared_error": lambda r: by_hand.squared_error(r(3, 5), r(3, 5)),
    "sae.by_hand.backward": lambda r: by_hand.backward(*hand_pass(r)),
    "sae.by_hand.step": lambda r: by_hand.step(
        made := layers(r), by_hand.backward(made, by_hand.forward(made, r(3, 5)), r(3, 5)), step_size=0.1
    ),
    "sae.by_hand.sparse_loss": lambda r: by_hand.sparse_loss(*hand_pass(r), l1=0.1),
    "sae.by_hand.sparse_backward": lambda r: by_hand.sparse_backward(*hand_pass(r), l1=0.1),
    "parallel.mean_over_ranks": lambda r: parallel.mean_over_ranks(r(3)),
    "parallel.gathered": lambda r: parallel.gathered(r(3)),
    "parallel.largest": code_at,
    "sae.kernels.code_at": code_at,
    "sae.kernels.sparse_reconstruction": sparse_code,
    "sae.kernels.relu_l1": sparse_code,
    "sae.kernels.topk_code": sparse_code,
    "sae.kernels.even_code": sparse_code,
    "sae.kernels.largest": lambda r: kernels.largest(r(5, 32), 3),
    "sae.kernels.entries_of_product": sparse_code,
    "sae.screening.topk_code": lambda r: screening.topk_code(
        r(5, 6), r(32, 6), r(32), k=3, compute_dtype=torch.float32
    ),
    "sae.kernels.nested_reconstruction": sparse_code,
    "sae.kernels.residual_reconstruction": sparse_code,
    "sae.kernels.gated": sparse_code,
    "sae.kernels.site_norms": sparse_code,
    "sae.kernels.active_counts": lambda r: kernels.active_counts(r(5, 32)),
    "sae.kernels.stacked_reconstruction": lambda r: kernels.stacked_reconstruction(
        r(5, 6).detach(),
        [(r(4, 6), r(4)), (r(2, 4), r(2))],
        (r(6, 2), r(6)),
        activation="sigmoid",
        scale=2.0,
        compute_dtype=torch.float32,
    ),
    "sae.memory.empty": lambda r: memory.empty(3, 4, like=r(2)).zero_(),
    "sae.memory.converted": lambda r: memory.converted(r(3, 4), torch.bfloat16),
    "sae.losses.reconstruction": lambda r: losses.reconstruction(r(5, 6), r(5, 6)),
    "sae.losses.bernoulli_kl": lambda r: losses.bernoulli_kl(0.1, r(4)),
    "sae.losses.kl_sparsity": lambda r: losses.kl_sparsity(r(5, 4), rho=0.1),
    "sae.losses.squared_error": lambda r: losses.squared_error(r(5, 2), r(5, 2)),
    "sae.losses.cross_entropy": lambda r: losses.cross_entropy(r(5, 3), r.whole(5)),
    "sae.losses.combined": lambda r: losses.combined(r(), r(), r(), beta=0.1, gamma=0.1),
    "sae.losses.decoder_weighted_l1": lambda r: losses.decoder_weighted_l1(r(5, 4), r(6, 4)),
    "sae.metrics.firing_rates": lambda r: metrics.firing_rates(r(5, 8)),
    "sae.metrics.UnitActivity": unit_activity,
    "sae.recovery.cosines": lambda r: recovery.cosines(r(6, 8), r(4, 6)),
    "sae.resonance.thresholds": lambda r: resonance.thresholds(r(9, 4), frequency=0.3),
    "sae.resonance.resonance_step": lambda r: resonance.resonance_step(r(4, 6), r(9, 6), frequency=0.3),
    "sae.resonance.resonate": lambda r: resonance.resonate(r(4, 6), r(9, 6), frequency=0.3, steps=2),
    "sae.sparse.group_bias.adapted_bias": lambda r: sparse.adapted_bias(
        r(8), frequency=r(8), target=r(8), largest=r(8), group=r.whole(8), gamma=0.1
    ),
    "representation.circuits.Circuit": circuit_norms,
    "representation.circuits.Heads": lambda r: heads(r).change_basis(r(3, 3), r(3, 3)).take([1, 2]),
    "representation.circuits.circuit_gradients": lambda r: circuits.circuit_gradients(
        circuits.Circuit(r(5, 2), r(2, 4)), r(5, 4)
    ),
    "representation.circuits.composition": lambda r: [circuits.composition(r(6, 5), r(5, 4))],
    "representation.circuits.composition_scores": lambda r: [circuits.composition_scores(heads(r))],
    "representation.circuits.token_path": lambda r: circuits.token_path(
        r(9, 6), r(6, 9), circuits.Circuit(r(6, 3), r(3, 6))
    ),
    "representation.attention_only.head_by_circuits": lambda r: [
        attention_only.head_by_circuits(r(5, 6), r(6, 6), r(6, 6), d_head=3)
    ],
    "representation.attention_only.attention": lambda r: attention_only.attention(r(2, 5, 6), heads(r)),
    "representation.attention_only.attention_gradients": lambda r: attention_only.attention_gradients(
        r(2, 5, 6), heads(r), r(2, 5, 6)
    ),
    "representation.attention_only.SelfAttention": lambda r: r.module(
        lambda: attention_only.SelfAttention(6, 2)
    )(r(2, 5, 6)),
    "representation.attention_only.AttentionOnly": lambda r: [
        r.module(lambda: attention_only.AttentionOnly(vocabulary=9, max_tokens=5, d_model=6, n_heads=2))(
            r.whole(2, 5)
        )
    ],
    "representation.attention_only.repeat_loss": lambda r: [
        attention_only.repeat_loss(r(2, 5, 9), r.whole(2, 6), r.whole(2, 6) == 0)
    ],
    "representation.head_scores.offset_score": lambda r: [head_scores.offset_score(r(2, 5, 5), -1)],
    "representation.head_scores.matching_score": lambda r: [
        head_scores.matching_score(r(2, 5, 5), r.whole(2, 5), r.whole(2, 5))
    ],
    "sae.sparse.base.remove_radial_": lambda r: [
        rows := r(4, 6).detach(),
        sparse.remove_radial_(rows, r(4, 6)),
    ][:1],
    "sae.sparse.base.rescale_columns_": lambda r: [
        weight := r(6, 4).detach(),
        sparse.rescale_columns_(weight),
    ][:1],
    "sae.sparse.crosscoder.exclusive_site": lambda r: sparse.exclusive_site(r(2, 8), threshold=0.8),
    "sae.sparse.topk.largest_of_rows": lambda r: sparse.topk.largest_of_rows(r(5, 8), 2),
    # theory
    **{
        f"theory.in_context_regression.{form.__name__}": lambda r, form=form: form(*regression_inputs(r))
        for form in (icr.attention_by_heads, icr.attention, icr.mean_squared_error, icr.gradients)
    },
    "theory.markov_chains.Chains": lambda r: chains(r).next_law(3),
    "theory.markov_chains.window_law": lambda r: markov_chains.window_law(chains(r), 3),
    "theory.markov_chains.next_table": lambda r: markov_chains.next_table(chains(r), 2),
    "theory.markov_chains.criterion": lambda r: markov_chains.criterion(r(4, 2, 2, 2), (2,)),
    "theory.markov_chains.chi_square": lambda r: markov_chains.chi_square(r(4, 2, 2, 2), (1, 2)),
    "theory.markov_chains.generalised_head": lambda r: [
        markov_chains.generalised_head(r.whole(4, 9), (1, 2), 2)
    ],
    "theory.markov_chains.oracle": lambda r: markov_chains.oracle(chains(r), r.whole(4, 9)),
    "theory.markov_chains.cross_entropy": lambda r: [markov_chains.cross_entropy(r(4, 2), r.whole(4))],
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
    "theory.induction_heads.predicted_rates": lambda r: induction.predicted_rates(r(3, 4), head_inputs(r)[2]),
    "theory.induction_heads.matched_weight": lambda r: [
        induction.matched_weight(r(2, 5, 5), r.whole(2, 5), (1, 2))
    ],
    "theory.attention_margin.attention_output": lambda r: margin.attention_output(samples(r), r(4, 4)),
    "theory.attention_margin.exponential_loss": lambda r: margin.exponential_loss(samples(r), r(4, 4)),
    "theory.attention_margin.constraints": lambda r: [
        margin.constraints(samples(r), diagonal=diagonal) for diagonal in (False, True)
    ],
    "theory.attention_margin.stacked": lambda r: margin.stacked([samples(r), samples(r)]),
    "theory.attention_margin.flow_by_euler": lambda r: margin.flow_by_euler(
        samples(r), [r(4, 4), r(4, 4)], diagonal=False, step=0.1, steps=2
    ),
    "theory.attention_margin.pull": lambda r: margin.pull(r(5, 2), r(5, 2), r(5)),
    "theory.attention_margin.loss_gradient": lambda r: [
        margin.loss_gradient(margin.constraints(samples(r), diagonal=True), r(4)),
        margin.loss_gradient(margin.constraints(samples(r), diagonal=False), r(4, 4)),
    ],
    "theory.attention_margin.product": lambda r: [
        margin.product([r(4, 4), r(4, 4)], kind) for kind in ("kq", "KQ")
    ],
    "theory.attention_margin.flow_step": lambda r: [
        margin.flow_step(
            [r(*shape) for _ in range(margin.PARAMETERS[kind])],
            margin.constraints(samples(r), diagonal=len(shape) == 1),
            parametrisation=kind,
        )
        for kind, shape in (("W", (4,)), ("kq", (4,)), ("W", (4, 4)), ("KQ", (4, 4)))
    ],
    "theory.attention_margin.nuclear_norm": lambda r: [
        margin.nuclear_norm(r(4), diagonal=True),
        margin.nuclear_norm(r(4, 4), diagonal=False),
    ],
    "theory.attention_margin.direction_cosine": lambda r: margin.direction_cosine(
        r(4, 4), r(4, 4), diagonal=False
    ),
    "theory.attention_margin.excess": lambda r: margin.excess(r(2), r(2), r(2)),
    "theory.restricted_minimax.likelihood": lambda r: restricted.likelihood(r(4), 3),
    "theory.restricted_minimax.risk": lambda r: restricted.risk(r(2, 4), r(5)),
    "theory.restricted_minimax.risk_by_sum": lambda r: restricted.risk_by_sum(r(4), r()),
    "theory.restricted_minimax.risk_slope": lambda r: restricted.risk_slope(r(2, 4), r(5)),
    "theory.restricted_minimax.bayes_rule": lambda r: restricted.bayes_rule(r(4), r(4), 3),
    "theory.restricted_minimax.bayes_risk": lambda r: restricted.bayes_risk(r(4), r(4), 3),
    "theory.in_context_regression.factor_step": lambda r: icr.factor_step(*regression_inputs(r), 0.1),
    "theory.in_context_regression.winners": lambda r: [icr.winners(r(4, 3))],
    "theory.in_context_regression.one_head_each": lambda r: [icr.one_head_each(r(4, 3))],
    "theory.in_context_regression.shares": lambda r: icr.shares(r(4, 3)),
    "theory.in_context_regression.ridge_answers": lambda r: icr.ridge_answers(
        regression_inputs(r)[0], icr.Tasks(n_tasks=3, block=2, n_examples=7)
    ),
    **{
        f"{kind.__module__.removeprefix('course_lib.')}.{kind.__name__}": uses(kind, **options)
        for kind, options in AUTOENCODERS.items()
    },
    # theory, the tensor of a Hawkes process
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
    # The backward pass of complex singular vectors checks their phases, by value.
    "theory.tensor_nuclear_norm.prox_by_slices": lambda r: [
        tensor_nuclear_norm.prox_by_slices(r(3, 4, 6).detach(), 0.1, "fourier"),
        tensor_nuclear_norm.prox_by_slices(r(3, 4, 6), 0.1, "slices"),
    ],
    "theory.tensor_nuclear_norm.numerical_ranks": lambda r: [
        tensor_nuclear_norm.numerical_ranks(r(3, 4, 6), "fourier", share=0.9)
    ],
    "theory.tensor_nuclear_norm.shrink": lambda r: tensor_nuclear_norm.shrink(r(4, 3), 0.1),
    "theory.tensor_nuclear_norm.shrink_by_svd": lambda r: tensor_nuclear_norm.shrink_by_svd(r(4, 3), 0.1),
    "theory.hawkes.spectral_radius": lambda r: hawkes.spectral_radius(r(3, 3, 4)),
    "theory.hawkes.scaled_to": lambda r: hawkes.scaled_to(r(3, 3, 4), 0.8),
    "theory.hawkes.stationary_rate": lambda r: hawkes.stationary_rate(r(3), r(3, 3, 4)),
    "theory.hawkes.rate_by_loops": lambda r: hawkes.rate_by_loops(r(9, 3), r(3), r(3, 3, 4), 6),
    "theory.hawkes.rates": lambda r: hawkes.rates(r(9, 3), r(3), r(3, 3, 4)),
    "theory.hawkes.log_likelihood": lambda r: hawkes.log_likelihood(r(9, 3), r(9, 3)),
    "theory.hawkes.moments": lambda r: hawkes.moments(r(9, 3), 4).gram,
    "theory.hawkes.moments_by_rows": lambda r: hawkes.moments_by_rows(r(9, 3), 4).gram,
    "theory.hawkes.squared_error": lambda r: hawkes.squared_error(
        hawkes.moments(r(9, 3), 4), r(3, 3, 4), r(3)
    ),
    "theory.hawkes.slope": lambda r: hawkes.slope(hawkes.moments(r(9, 3), 4), r(3, 3, 4)),
    "theory.hawkes.largest_weight": lambda r: [
        hawkes.largest_weight(hawkes.moments(r(9, 3), 4), kind) for kind in hawkes.PENALTIES[1:]
    ],
    "theory.hawkes.largest_step": lambda r: hawkes.largest_step(hawkes.moments(r(9, 3), 4)),
    "theory.hawkes.fista_step": lambda r: hawkes.fista_step(
        r(3, 3, 4),
        r(3, 3, 4),
        2.0,
        hawkes.moments(r(9, 3), 4),
        step=r(),
        weight=r(),
        penalty="fourier",
    )[:2],
    "representation.purification.purification_loss": lambda r: purification.purification_loss(
        r(4, 4), r(5, 4), 0.5
    ),
    "representation.purification.purification_gradient": lambda r: purification.purification_gradient(
        r(4, 4), r(5, 4), 0.5
    ),
    "representation.purification.purifying_matrix": lambda r: purification.purifying_matrix(r(5, 4), 0.5),
    "representation.purification.shrink_factors": lambda r: purification.shrink_factors(r(4), r(2)),
    "representation.purification.penalty_for": lambda r: purification.penalty_for(r(4), 0.8),
    "representation.erasure.Eraser": lambda r: erasure.Eraser(
        r(4).detach().double(), r(4, 2).detach().double(), r(2, 4).detach().double()
    ).erase(r(5, 4)),
}

# Everything else, by the reason why it is asked for no tensor on a device, or reads a value back.
EXCEPTIONS = {
    "takes and returns Python numbers, text or functions, no tensor": """
        architectures.convolution: output_size receptive_field fft_size weight_gradient_std effective_width
        architectures.graphs: simple_path_counts refine_colours
        attention.feature_maps: sum_dtype
        attention.kernelized_chunks: slices
        attention.kernelized: softmax_multiply_adds linear_multiply_adds crossover_length memory_crossover_length
        attention.ridge: operations
        attention.rotary: ntk_aware_base yarn_attention_factor
        optimization.gradient_descent: steps_to_accuracy
        optimization.gradient_estimators: gaussian_expectation quadratic_score_variance cosine_variances
        optimization.muon: shape_factor
        optimization.mup: Fans Entry UnitScale roles step_kind attention_scale sign_change_mean_square
        optimization.newton_schulz: minimax_quintic minimax_composition polar_express
        optimization.ridge: ridge_flops mean_factor second_moment_factor mean_limit second_moment_limit
        optimization.ridge: stationary_moments
        representation.lora: adapter_scale find_linears adapters adapt param_groups
        sae.autoencoder: check_width
        sae.by_hand: matrix
        sae.concepts: token_concepts
        sae.concept_report: ConceptScore CategoryScore ConceptReport TooFewRowsError
        representation.pca: Rows
        representation.variance: relu_share unit_share
        representation.circuits: reads
        parallel: local_rank process_group synchronised world_size rank on_first barrier
        sae.losses: check_probability check_weight
        sae.sparse.topk: check_k
        sae.metrics: Evaluation
        sae.memory: Memory
        sae.resonance: firing_count resonance_band bias_for_frequency
        sae.train: TrainConfig History compute_dtype
        theory.in_context_regression: best_head served_error emergence_time zero_sum_error
        theory.restricted_minimax: one_trial_rule two_point_limit classical_limit
        theory.markov_chains: check_lags
    """,
    "is for processors with integer products, and says so": """
        sae.screening: screened
    """,
    "makes its tensors from numbers alone, on the CPU": """
        attention.rotary: layout_order
        optimization.ridge: moments three_point_noise
        sae.planted: log_spaced_frequencies
        theory.in_context_regression: zero_sum_heads
        theory.restricted_minimax: two_point classical_rule classical_prior prior_by_updates minimax minimax_by_cones
        theory.induction_heads: start
    """,
    "multiplies by a sparse matrix, which neither meta nor fake tensors can": """
        architectures.graphs: aggregate gcn_layer gcn_gradients message_layer
    """,
    "sorts edges into sparse matrices, once and in no loop": """
        architectures.graphs: Graph gcn_graph
    """,
    "draws from a generator, on whose device the result is": """
        attention.recall: train_to_recall
        architectures.convolution: correlated_images
        optimization.gradient_estimators: gumbel_noise
        optimization.stochastic_gradient_descent: draw_indices
        representation.attention_only: repeated_sequences planted_induction
        sae.planted: PlantedDictionary
        sae.resonance: random_neurons
        theory.attention_margin: planted_samples random_samples
        theory.hawkes: simulate
        theory.in_context_regression: Tasks start train
        theory.markov_chains: random_chains draw_tokens
    """,
    "measures its input: what it returns is a Python number": """
        attention.recall: recall_accuracy
        optimization.gradient_descent: stability_limit worst_rate best_step svd_coordinates sharpness
        optimization.gradient_descent: heavy_ball_rate best_heavy_ball
        optimization.gradient_estimators: best_baseline
        optimization.mup: rounding_loss
        optimization.ridge: mean_step_limit second_moment_step_limit
        optimization.stochastic_gradient_descent: expected_change Constants constants loss_constants loss_factor
        optimization.stochastic_gradient_descent: loss_bound_step distance_factor distance_bound_step exact_rate
        optimization.stochastic_gradient_descent: stationary_variance
        representation.normality: MomentScores moment_scores mardia_score
        representation.pca: falling_rates
        representation.variance: components_needed kept_by_code
        representation.head_scores: induction_score_by_loops
        theory.markov_chains: criterion_by_sums
        sae.metrics: ExplainedVariance explained_variance fvu pca_bound pca_transfer l0 evaluate
        sae.recovery: Recovery recovery share_split Absorption absorption Agreement agreement
        theory.restricted_minimax: worst_case
    """,
    "refuses an input by its values, once and in no loop": """
        representation.erasure: concept_columns ErasureMoments fit_eraser probe_r2 erase_by_regression
        representation.purification: Purifier
        attention.ridge: sherman_morrison
        optimization.ridge: typical_factor
        theory.hawkes: delayed_kernel
        optimization.steepest_descent: smoothness
        optimization.stochastic_gradient_descent: minimum_norm_solution reduced_problem
        representation.pca: pca_by_svd RunningMoments pca
        sae.losses: check_labels
        sae.metrics: pca_curve PrincipalVariance
        theory.attention_margin: gradient_flow frobenius_svm l1_svm nuclear_svm
        theory.restricted_minimax: prior_on_grid
        theory.hawkes: fit fit_chosen
    """,
    "lists what it finds, so that its size is a value": """
        sae.losses: check_sparsity SparsityCheck
    """,
    "works on the CPU, after training: tables for a report, by sorting and by scipy": """
        sae.concepts: auroc paired_auroc best_thresholds f1_scores LabelledRows label_table encode_rows
        sae.concepts: principal_components random_features logistic_probe
        sae.concept_report: concept_report scores_of category_scores absorbed_share
        sae.spans: SpanScore span_scores span_summary
        sae.splits: Shortfall shortfalls
        sae.detectors: best_detectors best_detectors_by_columns Detectors judge Judged joined_detectors
        sae.recovery: assign
    """,
    "takes and returns numpy and scipy data for a solver on the CPU": """
        theory.sparse_socp: QCQP Relaxation with_apex symmetric random_problem lattice_edges wrong_signs lattice
        theory.sparse_socp: bipartite_edges signed_graph cycle_edges edges_by_loops edges all_pairs chordal_fill
        theory.sparse_socp: switching edge_signs least_minor conic_solve socp socp_by_cuts sdp local_minimum
        theory.sparse_socp: least_by_signs
        theory.power_flow: Network FlowRelaxation powers_at lift flow_socp flow_sdp flow_local tree_voltages
        theory.power_flow: loop_angle seven_buses
    """,
    "prepares a model for training or use, once and in no loop": """
        representation.lora: inject weight_gradients merge unmerge unload
    """,
    "checks shapes and dtypes and returns nothing": """
        architectures.state_space: check_sequence check_shape check_whole
        attention.shapes: check_qkv check_causal without_autocast
        representation.pca: check_table
    """,
    "reads files, or tables of any kind, on the way to the device": """
        representation.peft_format: save load
        sae.batches: RowSource Batches mean_and_scale check_finite
        sae.checkpoints: only_run write latest
        sae.io: save load
        sae.sae_lens_format: export load
        sae.train: train check_activations Objective
        sae.greedy: LayerInputs train_greedy
    """,
    "changes tensors of all ranks in place, in a process group": """
        parallel: sum_over_ranks max_over_ranks any_over_ranks average_gradients share share_generator
    """,
    "runs a model with hooks, which is where the model is, or reads its weights": """
        representation.head_scores: read_heads record replaced Recording
    """,
    "needs the eigenvalues of unsymmetric matrices, whose gradient neither meta nor fake tensors have": """
        representation.circuits: copying
    """,
    "is a base class or a tuple of results of what is in the table": """
        attention.layers: DecoderConfig
        attention.kernelized_chunks: Tokens Form
        attention.shapes: TorchOptions Inputs
        attention.states: AttentionState
        attention.random_features: RandomFeatures TrigonometricFeatures PositiveFeatures
        sae.autoencoder: Autoencoder
        sae.by_hand: Layer ForwardPass BackwardPass SparseLoss SparseBackwardPass
        sae.kernels: SparseCode
        sae.planted: PlantedRows
        sae.sparse.base: SparseAutoencoder
        theory.attention_margin: Samples Constraints Flow
        theory.hawkes: Moments Fit
        theory.in_context_regression: Prompts History
        theory.restricted_minimax: Solution
        theory.induction_heads: Examples History
    """,
}


def public_names() -> set[str]:
    modules = ["course_lib.parallel"]
    for package in ("architectures", "attention", "optimization", "representation", "sae", "theory"):
        root = importlib.import_module(f"course_lib.{package}")
        modules += [found.name for found in pkgutil.walk_packages(root.__path__, f"{root.__name__}.")]
    return {
        f"{module.removeprefix('course_lib.')}.{name}"
        for module in modules
        for name, value in vars(importlib.import_module(module)).items()
        if not name.startswith("_") and callable(value) and getattr(value, "__module__", "") == module
    }


def test_every_public_name_is_in_the_table_or_has_a_reason():
    excepted = [
        f"{module}.{name}"
        for lines in EXCEPTIONS.values()
        for module, _, names in (line.strip().partition(":") for line in lines.strip().splitlines())
        for name in names.split()
    ]
    listed = [*CASES, *excepted]
    assert len(listed) == len(set(listed))
    assert set(listed) == public_names()


def tensors(value: object) -> list[Tensor]:
    """All tensors in nested results."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    elif is_dataclass(value):
        value = [getattr(value, field.name) for field in fields(value)]
    return [t for part in value for t in tensors(part)] if isinstance(value, list | tuple) else []


@pytest.mark.parametrize("name", CASES)
def test_forward_and_backward_on_meta(name):
    found = tensors(CASES[name](Inputs("meta", learn=True)))
    assert found
    assert {t.device.type for t in found} == {"meta"}
    for output in found:
        if output.grad_fn is not None:
            output.abs().sum().backward(retain_graph=True)


# Torch built without CUDA cannot index a tensor that claims to be on it. Another device that has neither hardware nor
# kernels here stands in for it: what counts is that it is not the CPU.
GPU = "cuda" if torch.backends.cuda.is_built() else "lazy:0"


# What runs autograd itself needs the device to be there: torch asks the driver for its context.
OWN_BACKWARD = {"theory.attention_margin.flow_by_euler"}


@pytest.mark.parametrize("name", [name for name in CASES if GPU != "cuda" or name not in OWN_BACKWARD])
def test_forward_on_a_fake_gpu(name):
    with FakeTensorMode(), torch.no_grad():
        found = tensors(CASES[name](Inputs(GPU, learn=False)))
    assert found
    assert {t.device.type for t in found} == {torch.device(GPU).type}


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
