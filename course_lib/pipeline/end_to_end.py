"""Train an autoencoder on what mBART makes of its reconstructions, not on the states themselves.

A reconstruction with a small error may change the model's output much, and one with a large error little: most
directions of the states are not read by what comes after. The loss that sees the difference is the model's own.
"""

import hashlib
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from course_lib.language.corpus import Sentence
from course_lib.mbart.activations import tokenise, uncounted_ids
from course_lib.mbart.packed import Site
from course_lib.mbart.splicing import check_width, log_probabilities, padded_pairs, replaced
from course_lib.mbart.translation import IGNORED
from course_lib.sae.autoencoder import Autoencoder
from course_lib.sae.losses import check_weight


class EndToEnd:
    """The objective: how much the model's output changes with the states at a site reconstructed, and the penalty.

        total = downstream + penalty + local_weight ||x - x'||^2,

    for each token y of a target, given its source and the target's tokens before it, with q the output of the model
    whose states at `site` are reconstructions x' and p that of the model as it is,

        downstream = mean over tokens of sum_v p(v) log(p(v) / q(v))      ("kl"), or of -log q(y) ("cross_entropy").

    The penalty is the autoencoder's own, with the weight and warm-up that it has on rows (L1, AuxK, a gate's loss).
    Alone, the downstream loss leaves free whatever the model does not read: x' may be far from x. `local_weight`
    above 0 asks for the states, too; a Matryoshka's is then the nested loss.

    `sources` and `targets` are read as by `loss_recovered`, and the same rows are replaced. The model stays as it is
    and runs without dropout; the gradient passes through its layers after `site`. `replaced` looks at how many
    positions count, so a step on a GPU waits for that number. Pass it to `train`, with some states of the site:

        states = extract(model, tokenizer, sources, [site])[site].values
        train(autoencoder, states, config, generator=generator, objective=EndToEnd(model, tokenizer, site, ...))

    Raises ValueError for no pairs or unequal numbers, parameters of the model that ask for a gradient, an unknown
    `downstream`, a negative `local_weight`, and an autoencoder of another width. Source: Braun et al. (2024),
    arXiv:2405.12241.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        site: Site,
        sources: Sequence[Sentence],
        targets: Sequence[Sentence],
        *,
        downstream: str = "kl",
        local_weight: float | int = 0.0,
        include_special: bool = False,
    ) -> None:
        if not sources or len(sources) != len(targets):
            raise ValueError(f"there are {len(sources)} sources and {len(targets)} targets; expected pairs")
        if downstream not in ("kl", "cross_entropy"):
            raise ValueError(f"downstream is {downstream!r}; expected 'kl' or 'cross_entropy'")
        check_weight("local_weight", local_weight)
        learning = sum(parameter.requires_grad for parameter in model.parameters())
        if learning:
            raise ValueError(
                f"{learning} parameters of the model ask for a gradient; expected none, or every step would gather "
                "gradients that nobody uses: call model.requires_grad_(False)"
            )
        site.resolved(model.config)
        self.model, self.site = model, site
        self.downstream, self.local_weight = downstream, local_weight
        self.read = tokenise(tokenizer, sources)
        self.predicted = tokenise(tokenizer, targets, what="target", target=True)
        self.skipped = uncounted_ids(tokenizer, include_special)

    def __len__(self) -> int:
        return len(self.read)

    def identity(self) -> dict[str, Any]:
        """Site, loss, and digests of the pairs, of the tokens left alone, and of the model's parameters."""
        digest = hashlib.sha256()
        for parameter in self.model.parameters():
            digest.update(parameter.detach().double().sum().cpu().numpy())
        pairs = repr((self.read, self.predicted, torch.as_tensor(self.skipped).tolist()))
        return {
            "site": str(self.site),
            "downstream": self.downstream,
            "local_weight": self.local_weight,
            "pairs": hashlib.sha256(pairs.encode()).hexdigest()[:16],
            "model": digest.hexdigest()[:16],
        }

    def loss(
        self, autoencoder: Autoencoder, examples: Int[Tensor, " batch"], *, sparsity_scale: float | int = 1.0
    ) -> dict[str, Float[Tensor, ""]]:
        """Parts of the loss of pairs, given by their numbers: the autoencoder's own, "downstream", and "total".

        Raises ValueError for an autoencoder of another width than the model, and for pairs none of whose
        positions is replaced.
        """
        check_width(autoencoder, self.model, self.site)
        chosen = examples.tolist()
        inputs, labels = padded_pairs(
            [self.read[i] for i in chosen], [self.predicted[i] for i in chosen], self.model
        )
        counted, parts = labels != IGNORED, {}

        def replace(x: Float[Tensor, "rows d_model"]) -> Float[Tensor, "rows d_model"]:
            own = x.to(autoencoder.input_mean)
            x_hat, found = autoencoder.training_forward(own, sparsity_scale=sparsity_scale)
            parts.update(found)
            return x_hat.to(x)

        training = self.model.training
        self.model.eval()
        try:
            with replaced(self.model, self.site, replace, skipped_ids=self.skipped):
                other = log_probabilities(self.model, inputs, counted)
            if not parts:
                raise ValueError(f"none of the positions of {len(chosen)} pairs is replaced; expected words")
            if self.downstream == "kl":
                with torch.no_grad():
                    clean = log_probabilities(self.model, inputs, counted)
                downstream = (clean.exp() * (clean - other)).sum(dim=1).mean()
            else:
                downstream = -other.gather(1, labels[counted][:, None]).mean()
        finally:
            self.model.train(training)
        name, weight = autoencoder.main_part
        local = weight * parts[name]
        total = downstream + (parts["total"] - local) + self.local_weight * local
        return {**parts, "downstream": downstream, "total": total}
