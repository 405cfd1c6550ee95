"""Sentences of lesson 36, feature_recovery, each with what decides on it."""

import torch

from course_lib.lessons.feature_recovery.contents import lesson
from course_lib.lessons.feature_recovery.measurements import TRAINING, build, share_copied, share_found, toy, trained
from course_lib.sae.planted import PlantedDictionary
from course_lib.sae.recovery import assign, cosines, recovery
from course_lib.sae.train import train
from course_lib.teaching import fact


def _found(autoencoder, atoms: torch.Tensor) -> float:
    return recovery(autoencoder.decoder_weight.detach(), atoms).share_matched(0.9)


def _missing(autoencoder, rows: torch.Tensor) -> float:
    with torch.no_grad():
        return autoencoder.loss(rows)["reconstruction"].item()


@lesson.sentence("36.Q1", "An autoencoder that rebuilds every row exactly has found the atoms.", answer=False)
def exact():
    """A basis drawn at random and its negatives rebuild every row, of whatever atoms (36.1), and hold none (36.2)."""
    data = toy(0)
    basis = torch.linalg.qr(torch.randn(24, 24, generator=torch.Generator().manual_seed(1)))[0]
    units = torch.cat([basis, -basis])
    error = ((torch.relu(data.rows @ units.T) @ units - data.rows).abs()).max()
    return "\n".join(
        [
            fact("largest error {:.0e}", error, at_most=1e-5),
            fact("atoms at cosine 0.9: {:.0%}", recovery(units.T, data.planted.atoms).share_matched(0.9), at_most=0.0),
        ]
    )


@lesson.sentence(
    "36.Q2",
    "Every row holds 6 of the 32 atoms, and TopK with k = 6 finds next to none. So the atoms do not have the least error.",
    answer=False,
)
def missed():
    """Training misses them. Started with 32 of its 128 units at the atoms it keeps all, with a smaller error."""
    found, missing = [], []
    for start in (False, True):
        generator = torch.Generator().manual_seed(0)
        planted = PlantedDictionary(32, 24, generator=generator)
        rows = planted.draw(8000, active=6, generator=generator, unit_rows=True).rows
        full = build("TopK", 6, d_model=24, generator=generator)
        if start:
            with torch.no_grad():
                full.decoder_weight[:, :32], full.encoder_weight[:32] = planted.atoms.T, planted.atoms
        train(full, rows, TRAINING, generator=generator, progress=False)
        found.append(_found(full, planted.atoms))
        missing.append(_missing(full, rows))
    return "\n".join(
        [
            fact("random start: {:.0%} of the atoms", found[0], at_most=0.3),
            fact("started at the atoms: {:.0%}", found[1], at_least=0.9),
            fact("its error over that of the random start: {:.2f}", missing[1] / missing[0], at_most=0.75),
        ]
    )


@lesson.sentence("36.Q3", "A direction that two trainings both find, at cosine 0.9, is an atom.", answer=False)
def twice():
    """At k = 2 each is an atom less a part of the mean row: near the atom, and yet not it. Counted among units that fire."""
    data = toy(0)
    pair = []
    for seed in (0, 1):
        autoencoder = trained("TopK", 2, seed)
        with torch.no_grad():
            fires = (autoencoder.encode(data.held_out) > 0).any(dim=0)
        pair.append(autoencoder.decoder_weight.detach()[:, fires])
    table = cosines(pair[0], pair[1].T)
    rows, columns = assign(table)
    common = pair[0][:, columns[table[rows, columns] >= 0.9]]
    atoms = (cosines(common, data.planted.atoms).amax(0) >= 0.9).double().mean()
    return "\n".join(
        [
            fact("directions found twice: {:.0f}", common.shape[1], at_least=20),
            fact("of these are atoms at cosine 0.9: {:.0%}", atoms, at_most=0.1),
            fact(
                "atoms found by them with the mean's direction taken out: {:.0%}",
                share_found(common, data, out=data.rows.mean(dim=0)),
                at_least=0.7,
            ),
        ]
    )


@lesson.sentence("36.Q4", "A stronger penalty leaves a larger error, so it finds fewer atoms.", answer=False)
def stronger():
    """At 1 the error is far larger than at 0.01, and more of the atoms are found. Most are found in between."""
    data = toy(0)
    weak, strong = (trained("L1", penalty, 0) for penalty in (0.01, 1.0))
    missing = [_missing(one, data.held_out) for one in (weak, strong)]
    found = [_found(one, data.planted.atoms) for one in (weak, strong)]
    return "\n".join(
        [
            fact("penalty 1 over 0.01: {:.0f} times the error", missing[1] / missing[0], at_least=50),
            fact("atoms at 0.01: {:.0%}", found[0], at_most=0.6),
            fact("atoms at 1: {:.0%}", found[1], at_least=0.7),
        ]
    )


@lesson.sentence(
    "36.Q5",
    "Nearly all units of an autoencoder fire, and hardly any is a copy of another. It may still hold few of the atoms.",
    answer=True,
)
def busy():
    """This happens at k = 16: units that share an atom need not be alike (36.3)."""
    data, autoencoder = toy(0), trained("TopK", 16, 0)
    with torch.no_grad():
        fires = (autoencoder.encode(data.held_out) > 0).any(dim=0)
    copied = share_copied(autoencoder.decoder_weight.detach()[:, fires])
    return "\n".join(
        [
            fact("units that fire: {:.0%}", fires.double().mean(), at_least=0.85),
            fact("units with another at cosine 0.9: {:.0%}", copied, at_most=0.05),
            fact("atoms at cosine 0.9: {:.0%}", _found(autoencoder, data.planted.atoms), at_most=0.4),
        ]
    )
