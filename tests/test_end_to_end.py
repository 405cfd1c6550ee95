"""Training through the model: the loss by hand, its gradient by autograd, and what the loop does with it."""

import dataclasses

import pytest
import torch
from transformers.modeling_outputs import BaseModelOutput

from course_lib.mbart.activations import Site, extract, uncounted_ids
from course_lib.mbart.splicing import padded_pairs
from course_lib.pipeline.end_to_end import EndToEnd
from course_lib.sae import (
    BatchTopKSparseAutoencoder,
    GatedSparseAutoencoder,
    MatryoshkaTopKSparseAutoencoder,
    ReluSparseAutoencoder,
    StackedAutoencoder,
    TopKSparseAutoencoder,
    TrainConfig,
    train,
)
from tests.mbart import test_splicing
from tests.mbart.test_splicing import SOURCES, TARGETS

model, tokenizer = test_splicing.model, test_splicing.tokenizer  # its fixtures

KINDS = {
    "relu": lambda g: ReluSparseAutoencoder(16, 40, l1=0.1, generator=g),
    "topk": lambda g: TopKSparseAutoencoder(16, 40, k=3, generator=g),
    "batch topk": lambda g: BatchTopKSparseAutoencoder(16, 40, k=3, generator=g),
    "matryoshka": lambda g: MatryoshkaTopKSparseAutoencoder(16, 40, k=3, generator=g),
    "gated": lambda g: GatedSparseAutoencoder(16, 40, l1=0.1, generator=g),
    "stacked": lambda g: StackedAutoencoder(16, (8, 4), beta=0.1, generator=g),
}
CONFIG = TrainConfig(steps=60, batch_size=4, step_size=1e-2, record_every=5)


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def frozen(model):
    model.requires_grad_(False)
    yield model
    model.requires_grad_(True)


@pytest.fixture
def states(frozen, tokenizer):
    return extract(frozen, tokenizer, SOURCES, [Site("encoder")], progress=False)[Site("encoder")].values


def made(kind, states):
    autoencoder = KINDS[kind](rng())
    autoencoder.fit_normalisation(states)
    return autoencoder


@pytest.mark.parametrize("downstream", ["kl", "cross_entropy"])
@pytest.mark.parametrize("kind", KINDS)
def test_value_and_gradient_are_those_of_autograd_through_the_model(
    frozen,
    tokenizer,
    states,
    kind,
    downstream,
):
    """The encoder's output, replaced by hand and given to the decoder."""
    autoencoder = made(kind, states)
    objective = EndToEnd(
        frozen, tokenizer, Site("encoder"), SOURCES, TARGETS, downstream=downstream, local_weight=0.3
    )
    parts = objective.loss(autoencoder, torch.arange(4), sparsity_scale=0.5)

    inputs, labels = padded_pairs(objective.read, objective.predicted, frozen)
    kept = torch.isin(inputs["input_ids"], torch.tensor([1, *uncounted_ids(tokenizer, False).tolist()]))
    hidden = frozen.model.encoder(inputs["input_ids"], inputs["attention_mask"]).last_hidden_state
    x = hidden[~kept]
    z = autoencoder.normalise(x)
    stacked = kind == "stacked"
    code = autoencoder._encode(z) if stacked else autoencoder._activate_batch(autoencoder._preactivations(z))
    spliced = hidden.clone()
    spliced[~kept] = autoencoder.decode(code)

    def log_probabilities(state):
        out = frozen(
            encoder_outputs=BaseModelOutput(state),
            attention_mask=inputs["attention_mask"],
            decoder_input_ids=inputs["decoder_input_ids"],
        )
        return out.logits[labels != -100].log_softmax(dim=1)

    q, p = log_probabilities(spliced), log_probabilities(hidden)
    change = {
        "kl": (p.exp() * (p - q)).sum(dim=1).mean(),
        "cross_entropy": torch.nn.functional.nll_loss(q, labels[labels != -100]),
    }[downstream]
    local = autoencoder._parts(z, labels=None, sparsity_scale=0.5)
    penalty = {"relu": ["l1"], "gated": ["l1"], "stacked": ["kl"]}.get(kind, [])
    expected = change + sum(0.1 * 0.5 * local[name] for name in penalty)
    if kind == "gated":
        expected = expected + local["gate"]
    expected = expected + 0.3 * local["nested" if kind == "matryoshka" else "reconstruction"]
    torch.testing.assert_close(parts["downstream"], change)
    torch.testing.assert_close(parts["total"], expected)
    weights = list(autoencoder.parameters())
    ours, theirs = (torch.autograd.grad(value, weights) for value in (parts["total"], expected))
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)
    assert all(parameter.grad is None for parameter in frozen.parameters())


def test_it_trains_what_the_model_reads(frozen, tokenizer, states):
    """As long on the states and on the output: each is better at its own."""
    found = {}
    for name, objective in (
        ("rows", None),
        ("output", EndToEnd(frozen, tokenizer, Site("encoder"), SOURCES, TARGETS)),
    ):
        autoencoder = TopKSparseAutoencoder(16, 40, k=1, generator=rng())
        train(autoencoder, states, CONFIG, generator=rng(1), progress=False, objective=objective)
        asked = EndToEnd(frozen, tokenizer, Site("encoder"), SOURCES, TARGETS)
        with torch.no_grad():
            found[name] = asked.loss(autoencoder, torch.arange(4))
    assert found["output"]["downstream"] < found["rows"]["downstream"]
    assert found["rows"]["reconstruction"] < found["output"]["reconstruction"]


class StopsAt(EndToEnd):
    left = 10**6

    def loss(self, *args, **kwargs):
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt
        return super().loss(*args, **kwargs)


@pytest.mark.parametrize("kind", ["relu", "batch topk"])
def test_stopped_and_resumed_is_as_never_stopped(frozen, tokenizer, states, kind, tmp_path):
    def run(directory=None, left=10**6, targets=TARGETS):
        autoencoder = KINDS[kind](rng())
        objective = StopsAt(frozen, tokenizer, Site("encoder"), SOURCES, targets)
        objective.left = left
        config = dataclasses.replace(CONFIG, steps=14, batch_size=3)
        history = train(
            autoencoder, states, config, generator=rng(1), objective=objective, progress=False,
            checkpoint_dir=directory, checkpoint_every=3,
        )  # fmt: skip
        return autoencoder.state_dict(), history

    expected, history = run()
    for left in (4, 6):
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path, left)
    state, resumed = run(tmp_path)
    assert resumed == history
    assert all(torch.equal(state[name], value) for name, value in expected.items())
    with pytest.raises(ValueError, match="of another run: its objective is"):
        run(tmp_path, targets=TARGETS[::-1])


def test_what_cannot_be_trained_end_to_end_is_refused(frozen, tokenizer, states):
    def objective(sources=SOURCES, **options):
        return EndToEnd(frozen, tokenizer, Site("encoder"), sources, TARGETS, **options)

    for options, message in (
        ({"sources": SOURCES[:2]}, "2 sources and 4 targets"),
        ({"downstream": "mse"}, "downstream is 'mse'"),
        ({"local_weight": -1.0}, "local_weight is -1"),
    ):
        with pytest.raises(ValueError, match=message):
            objective(**options)
    with pytest.raises(ValueError, match="d_model 8, the model 16"):
        objective().loss(TopKSparseAutoencoder(8, k=2), torch.arange(2))
    for settings, options, message in (
        ({"revive_every": 5}, {}, "revive_every is 5 with an objective"),
        ({"precision": "bfloat16"}, {}, "precision is 'bfloat16' with an objective"),
        ({}, {"labels": torch.zeros(len(states), dtype=torch.int64)}, "labels is given with an objective"),
    ):
        with pytest.raises(ValueError, match=message):
            train(
                made("topk", states), states, dataclasses.replace(CONFIG, **settings), generator=rng(),
                objective=objective(), progress=False, **options,
            )  # fmt: skip
    frozen.requires_grad_(True)
    with pytest.raises(
        ValueError, match=r"parameters of the model ask for a gradient.*requires_grad_\(False\)"
    ):
        objective()
