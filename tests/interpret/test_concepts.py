"""What concept scores are made of: exact AUROC with ties, the best threshold, the yardsticks."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from course_lib.interpret import concepts
from course_lib.interpret.concepts import LabelledRows
from course_lib.sae.autoencoder import Autoencoder


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def naive_auroc(scores, labels):
    """The definition, pair by pair."""
    table = torch.full((scores.shape[1], labels.shape[1]), float("nan"), dtype=torch.float64)
    for i, score in enumerate(scores.double().T):
        for j, label in enumerate(labels.T):
            gap = score[label][:, None] - score[~label]
            if gap.numel():
                table[i, j] = ((gap > 0).double() + (gap == 0).double() / 2).mean()
    return table


def random_table(seed, *, zeros, levels):
    """Scores of both signs with many ties, and labels, of which the last column has no positive row."""
    g = generator(seed)
    scores = (torch.randn(31, 5, generator=g) * levels).round() / levels
    scores[torch.rand(31, 5, generator=g) < zeros] = 0
    labels = torch.rand(31, 4, generator=g) < 0.3
    labels[:, -1] = False
    return scores, labels


@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.5, 0.95, 1.0]), st.sampled_from([1, 3, 1000]))
def test_auroc_is_the_definition(seed, zeros, levels):
    scores, labels = random_table(seed, zeros=zeros, levels=levels)
    expected = naive_auroc(scores, labels)
    for table in (scores, scores.to_sparse_coo(), scores.abs() * scores.sign()):
        got = concepts.auroc(table, labels)
        torch.testing.assert_close(got, expected, atol=1e-12, rtol=0, equal_nan=True)
    paired = concepts.paired_auroc(scores[:, :4], labels)
    torch.testing.assert_close(paired, expected[:4].diagonal(), atol=1e-12, rtol=0, equal_nan=True)
    torch.testing.assert_close(
        concepts.auroc(-scores, labels), 1 - expected, atol=1e-12, rtol=0, equal_nan=True
    )


def test_auroc_agrees_with_scikit_learn():
    metrics = pytest.importorskip("sklearn.metrics")
    g = generator()
    scores = torch.randn(400, 6, generator=g).relu().round(decimals=1)
    labels = torch.rand(400, 3, generator=g) < 0.2
    got = concepts.auroc(scores, labels)
    for i in range(6):
        for j in range(3):
            assert got[i, j].item() == pytest.approx(
                metrics.roc_auc_score(labels[:, j], scores[:, i]), abs=1e-12
            )


def test_auroc_of_large_tables_goes_by_blocks_and_by_the_sparse_product(monkeypatch):
    g = generator(1)
    scores = torch.randn(200, 40, generator=g) * (torch.rand(200, 40, generator=g) < 0.02)
    labels = torch.rand(200, 7, generator=g) < 0.3
    monkeypatch.setattr(concepts, "_BLOCK", 600)  # three columns at a time
    torch.testing.assert_close(
        concepts.auroc(scores, labels), naive_auroc(scores, labels), atol=1e-12, rtol=0
    )
    monkeypatch.setattr(concepts, "_SPARSE", 0)  # the dense product
    torch.testing.assert_close(
        concepts.auroc(scores, labels), naive_auroc(scores, labels), atol=1e-12, rtol=0
    )


def test_what_cannot_be_ranked_is_refused():
    labels = torch.ones(3, 1, dtype=torch.bool)
    with pytest.raises(ValueError, match="NaN or infinite"):
        concepts.auroc(torch.tensor([[1.0], [float("nan")], [0.0]]), labels)


@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.7]))
def test_the_threshold_has_the_largest_f1(seed, zeros):
    scores, labels = random_table(seed, zeros=zeros, levels=3)
    scores = scores[:, :4]
    chosen = concepts.f1_scores(scores > concepts.best_thresholds(scores, labels), labels)
    candidates = torch.cat([scores - 1e-3, scores + 1e-3])
    best = torch.stack([concepts.f1_scores(scores > c, labels) for c in candidates]).max(dim=0).values
    torch.testing.assert_close(chosen, best, atol=1e-12, rtol=0)


def test_f1_agrees_with_scikit_learn_and_thresholds_lie_between_scores():
    metrics = pytest.importorskip("sklearn.metrics")
    g = generator()
    predicted, labels = torch.rand(2, 300, 5, generator=g) < 0.3
    for j, value in enumerate(concepts.f1_scores(predicted, labels).tolist()):
        assert value == pytest.approx(metrics.f1_score(labels[:, j], predicted[:, j]), abs=1e-12)
    scores = torch.tensor([[0.0], [1.0], [3.0], [3.5]])
    assert concepts.best_thresholds(scores, scores > 2).item() == 2
    assert concepts.best_thresholds(scores, scores > -1).item() < 0  # every row is called


def test_rows_that_do_not_belong_together_are_refused():
    with pytest.raises(ValueError, match="languages has 2 entries for 3 rows"):
        LabelledRows(torch.zeros(3, 2), torch.zeros(3, 1, dtype=torch.bool), ["en_XX"] * 2)


def test_labels_of_sentences_and_of_tokens():
    table = concepts.label_table([{"a:x", "b:y"}, set(), {"b:y", "c:z"}], ["b:y", "a:x"])
    assert table.tolist() == [[True, True], [False, False], [True, False]]
    with pytest.raises(ValueError, match="twice"):
        concepts.label_table([], ["a", "a"])
    # "L'ami dort": an elided article, a noun of two pieces, a verb
    spans = [(2, 5, "person:friend"), (6, 10, "verb:sleep")]
    held = concepts.token_concepts(spans, [(0, 2), (2, 4), (4, 5), (5, 10), (0, 0)])
    assert held == [
        frozenset(),
        frozenset({"person:friend"}),
        frozenset({"person:friend"}),
        frozenset({"verb:sleep"}),
        frozenset(),
    ]


class Split(Autoencoder):
    """Each dimension by its sign: 2 d_model features that lose nothing."""

    kind = "split"

    @property
    def code_width(self):
        return 2 * self.d_model

    def config(self):
        return {"d_model": self.d_model}

    def _encode(self, x):
        return torch.cat([x.relu(), (-x).relu()], dim=1)

    def _decode(self, code):
        return code[:, : self.d_model] - code[:, self.d_model :]

    def _parts(self, x, *, labels, sparsity_scale):
        return {"total": x.new_zeros(())}


@pytest.mark.parametrize("sparse", [False, True])
def test_rows_are_encoded_batch_by_batch(sparse):
    autoencoder, states = Split(40), torch.randn(100, 40, generator=generator())
    if sparse:
        states *= torch.rand(100, 40, generator=generator(1)) < 0.05
    got = concepts.encode_rows(autoencoder, states, batch_size=33)
    assert got.is_sparse == sparse
    torch.testing.assert_close(got.to_dense() if sparse else got, autoencoder.encode(states))


def test_principal_components_are_those_of_the_training_rows():
    g = generator()
    train, other = torch.randn(2, 60, 5, generator=g, dtype=torch.float64) * torch.arange(1, 6)
    of_train, of_other = concepts.principal_components(train, train, other)
    covariance = torch.cov(of_train.T)
    torch.testing.assert_close(covariance, covariance.diagonal().diag(), atol=1e-9, rtol=0)
    assert (covariance.diagonal().diff() < 0).all()
    torch.testing.assert_close(
        torch.cdist(of_other, of_train), torch.cdist(other, train)
    )  # a rotation about the training mean
    assert of_train.mean(dim=0).abs().max() < 1e-12


def test_random_features_have_the_stated_number_active():
    states = torch.randn(50, 20, generator=generator()) + 5
    (table,) = concepts.random_features(states, states, n_features=200, active=7, generator=generator())
    assert table.shape == (50, 200)
    assert (table.to_dense() > 0).sum(dim=1).tolist() == [7] * 50
    with pytest.raises(ValueError, match="active is 0"):
        concepts.random_features(states, states, n_features=200, active=0, generator=generator())


def probed(seed):
    """States along six directions from long to very short, and concepts: easy, noisy, rare, without error."""
    g = generator(seed)
    mix = torch.randn(6, 6, generator=g, dtype=torch.float64) * torch.tensor([100.0, 10, 1, 1, 0.1, 0.01])
    states = torch.randn(500, 6, generator=g, dtype=torch.float64) @ mix + 3
    states[0] *= 100  # a row so far out that Newton's full steps would diverge
    scaled = (states - states.mean(dim=0)) / states.std(dim=0)
    noise = torch.randn(500, 4, generator=g) * torch.tensor([0.3, 3, 0.3, 0])
    return states, scaled, scaled[:, :4] + noise > torch.tensor([0.05, 0, 0.8, 0])


@pytest.mark.parametrize("ridge", [1e-1, 1e-4, 1e-7])
def test_the_probe_is_the_minimum(ridge):
    for seed in range(5):
        states, scaled, labels = probed(seed)
        weight, bias = concepts.logistic_probe(states, labels, ridge=ridge)
        # The same affine function of the scaled states. Rounding moves its gradient by less than 1e-12.
        w = (weight * states.std(dim=0)[:, None]).requires_grad_()
        b = (bias + states.mean(dim=0) @ weight).requires_grad_()
        losses = torch.nn.functional.binary_cross_entropy_with_logits(
            scaled @ w + b, labels.double(), reduction="none"
        )
        (losses.mean(dim=0).sum() + ridge / 2 * w.square().sum()).backward()
        assert torch.cat([w.grad, b.grad[None]]).norm(dim=0).max() < 1e-7 + 1e-10


def test_a_probe_that_is_not_the_minimum_is_refused(monkeypatch):
    states, _, labels = probed(0)
    with pytest.raises(
        RuntimeError, match=r"gradient of length .* after 2 steps, more than tolerance = 1e-07"
    ):
        concepts.logistic_probe(states, labels, max_iterations=2)
    with pytest.raises(ValueError, match="ridge is 0"):
        concepts.logistic_probe(states, labels, ridge=0)
    whole = concepts.logistic_probe(states, labels)
    monkeypatch.setattr(concepts, "_PROBED", 3)  # concepts in two parts
    for mine, other in zip(concepts.logistic_probe(states, labels), whole, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-3, atol=1e-3)


def test_the_probe_agrees_with_scikit_learn():
    linear_model = pytest.importorskip("sklearn.linear_model")
    states = torch.randn(400, 5, generator=generator(), dtype=torch.float64)
    states = (states - states.mean(dim=0)) / states.std(dim=0)
    labels = (states @ torch.randn(5, 2, generator=generator(1), dtype=torch.float64) + 0.5) > 0
    weight, bias = concepts.logistic_probe(states, labels, ridge=1e-2)
    for j in range(2):
        peer = linear_model.LogisticRegression(
            C=1 / (1e-2 * 400), solver="newton-cholesky", tol=1e-10, max_iter=1000
        )
        peer.fit(states.numpy(), labels[:, j].numpy())
        # A gradient of 1e-7 is at most 1e-7 / ridge away from the minimum in w.
        torch.testing.assert_close(weight[:, j], torch.from_numpy(peer.coef_[0]), atol=1e-5, rtol=0)
        assert bias[j].item() == pytest.approx(peer.intercept_[0], abs=1e-5)


def test_groups_take_the_largest_value_of_their_parts():
    generator = torch.Generator().manual_seed(3)
    values = torch.randn(40, 6, generator=generator).relu()
    groups = torch.arange(40) // 4
    rows = LabelledRows(values, torch.zeros(10, 2, dtype=torch.bool), groups=groups)
    expected = torch.stack([values[groups == g].max(dim=0).values for g in range(10)])
    assert torch.equal(rows.largest(values), expected)
    assert torch.equal(rows.largest(values.to_sparse_coo()), expected)
    assert torch.allclose(rows.mean(), torch.stack([values[groups == g].mean(dim=0) for g in range(10)]))
    with pytest.raises(ValueError, match="every row of labels to have a state"):
        LabelledRows(values, torch.zeros(11, 2, dtype=torch.bool), groups=groups)
