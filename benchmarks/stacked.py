"""Do the terms of a stacked autoencoder reach their aims? Mean activation and reader over beta and over gamma.

256-128-32 autoencoders on the pooled states of `course-mbart`, of its encoder or its decoder, are trained on 4,000
sentences with the combined loss; their reader names one of four languages. Everything is judged on 2,000
sentences of held-out meanings: the variance explained, the mean activation of the code beside its target `RHO`, the
units further than `EPSILON` from it, and how often the reader is right, in %.

Beside them stand the same autoencoder untrained, with a reader fitted to its code afterwards; trained without the
supervised term, with its untrained reader (gamma = 0) and with one fitted afterwards; and a reader trained on labels
in random order.

    python -m benchmarks stacked --save
"""

import torch
from torch import Tensor, nn

from benchmarks.timing import Spread
from course_lib import sae
from course_lib.sae.losses import check_sparsity
from course_lib.sae.metrics import explained_variance, pca_transfer

SIDES, SEEDS = ("encoder", "decoder"), (0, 1)
BETAS = (0, 0.01, 0.1, 0.3, 1, 3)
GAMMAS = (0, 0.002, 0.02, 0.2)  # at beta = 1; the betas at gamma = 0.02
RHO, EPSILON, WIDTHS = 0.05, 0.025, (128, 32)
STEPS, STEP_SIZE = 800, 1e-2
LONG = 2000


def states_of(split: str, sentences: int, *, seed: int) -> tuple[dict[str, Tensor], Tensor]:
    """Return the pooled states of encoder and decoder, and the number of each sentence's language."""
    from course_lib.language.corpus import LANGUAGES, generate
    from course_lib.mbart.activations import pooled_states
    from course_lib.mbart.model import load

    drawn = generate(sentences, seed=seed, split=split)
    found = pooled_states(*load("course-mbart"), drawn, progress=False)
    states = {"encoder": found.encoder.float(), "decoder": found.decoder.float()}
    return states, torch.tensor([LANGUAGES.index(sentence.language) for sentence in drawn])


def built(d_model: int, beta: float, gamma: float, seed: int) -> sae.StackedAutoencoder:
    """Return an untrained autoencoder with a reader for four languages."""
    generator = torch.Generator().manual_seed(seed)
    options = {"n_outputs": 4, "beta": beta, "rho": RHO, "gamma": gamma}
    return sae.StackedAutoencoder(d_model, WIDTHS, generator=generator, **options)


def trained(rows: Tensor, labels: Tensor, beta: float, gamma: float, seed: int, *, steps: int = STEPS):
    """Return an autoencoder trained on the rows."""
    model = built(rows.shape[1], beta, gamma, seed)
    generator = torch.Generator().manual_seed(100 + seed)
    config = sae.TrainConfig(steps=steps, step_size=STEP_SIZE)
    sae.train(model, rows, config, labels=labels, generator=generator, progress=False)
    return model


def fitted_reader(code: Tensor, labels: Tensor, others: Tensor) -> Tensor:
    """Return what a logistic reader, fitted to a finished code, says of other rows of it."""
    mean, std = code.mean(dim=0), code.std(dim=0)
    scaled = (code - mean) / std
    reader = nn.Linear(code.shape[1], 4)
    for parameter in reader.parameters():
        nn.init.zeros_(parameter)
    optimizer = torch.optim.LBFGS(reader.parameters(), max_iter=200, line_search_fn="strong_wolfe")

    def loss():
        optimizer.zero_grad()
        penalty = 1e-4 * reader.weight.square().sum()
        value = nn.functional.cross_entropy(reader(scaled), labels) + penalty
        value.backward()
        return value

    optimizer.step(loss)
    return reader((others - mean) / std).argmax(dim=1)


def share(said: Tensor, labels: Tensor) -> float:
    """Return how often, in %, the reader is right."""
    return 100 * (said == labels).double().mean().item()


@torch.no_grad()
def measured(model: sae.StackedAutoencoder, rows: Tensor, labels: Tensor) -> dict[str, float]:
    """Return the figures of one autoencoder on held-out rows, by name."""
    code = model.encode(rows)
    check = check_sparsity(code, rho=RHO, eps=EPSILON)
    return {
        "variance explained, %": 100 * explained_variance(rows, model.decode(code)),
        "mean activation": check.rho_hat.mean().item(),
        f"units further than {EPSILON} from {RHO}": len(check.outside),
        "reader right, %": share(model.predict(rows).argmax(dim=1), labels),
    }


def controls(train: Tensor, labels: Tensor, held_out: Tensor, answers: Tensor, seed: int) -> dict[str, float]:
    """Return how often readers are right that had no part in making the code, or nothing to learn."""
    untrained = built(train.shape[1], 0, 0, seed)
    untrained.fit_normalisation(train)
    plain = trained(train, labels, 0, 0, seed)
    shuffled = labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))]
    found = {}
    for name, model in (("untrained", untrained), ("gamma = 0", plain)):
        with torch.no_grad():
            codes = model.encode(train), model.encode(held_out)
        said = fitted_reader(codes[0], labels, codes[1])
        found[f"{name}, reader fitted afterwards: right, %"] = share(said, answers)
    misled = trained(train, shuffled, 0, 0.02, seed)
    with torch.no_grad():
        said = misled.predict(held_out).argmax(dim=1)
    found["gamma = 0.02, shuffled labels: right, %"] = share(said, answers)
    return found


def run() -> dict[str, Spread]:
    """Return the figures of the grid, of longer training, and of the controls."""
    torch.set_num_threads(1)
    train, labels = states_of("train", 4000, seed=27)
    held_out, answers = states_of("test", 2000, seed=28)
    figures = {}
    for side in SIDES:
        data = train[side], labels, held_out[side], answers
        bound = 100 * pca_transfer(train[side], held_out[side], WIDTHS[-1])
        figures[f"{side}: variance explained by {WIDTHS[-1]} components, %"] = Spread.of([bound])
        grid = [(beta, 0.02, STEPS) for beta in BETAS] + [(1, gamma, STEPS) for gamma in GAMMAS]
        grid += [(beta, 0.02, LONG) for beta in (0.01, 1)]
        settings = {f"beta = {b:g}, gamma = {g:g}, {steps} steps": (b, g, steps) for b, g, steps in grid}
        found = {
            name: [
                measured(trained(*data[:2], b, g, seed, steps=steps), held_out[side], answers)
                for seed in SEEDS
            ]
            for name, (b, g, steps) in settings.items()
        }
        for name, ones in found.items():
            for what in ones[0]:
                figures[f"{side}, {name}: {what}"] = Spread.of([one[what] for one in ones])
        besides = [controls(*data, seed) for seed in SEEDS]
        for what in besides[0]:
            figures[f"{side}, {what}"] = Spread.of([one[what] for one in besides])
    return figures
