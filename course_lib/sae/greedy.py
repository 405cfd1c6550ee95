"""Greedy layer-wise pretraining of a stacked autoencoder, before its layers are trained together."""

from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from course_lib.sae.batches import CHUNK, RowSource
from course_lib.sae.stacked import StackedAutoencoder
from course_lib.sae.train import History, TrainConfig, train


class LayerInputs:
    """What layer `depth` of a stacked autoencoder reads, row by row of the activations, computed when asked for."""

    def __init__(self, autoencoder: StackedAutoencoder, activations: RowSource, depth: int) -> None:
        self.autoencoder, self.activations, self.depth = autoencoder, activations, depth

    def __len__(self) -> int:
        return len(self.activations)

    @torch.no_grad()
    def __getitem__(self, rows: slice | Tensor) -> Float[Tensor, "rows n_in"]:
        """Rows of a slice or of a tensor of row numbers."""
        mean = self.autoencoder.input_mean
        states = self.autoencoder.normalise(self.activations[rows].to(mean.device, mean.dtype))
        return self.autoencoder.layer_inputs(states, self.depth)


def train_greedy(
    autoencoder: StackedAutoencoder,
    activations: RowSource,
    config: TrainConfig,
    *,
    pretraining: TrainConfig,
    generator: torch.Generator | None = None,
    labels: Tensor | None = None,
    progress: bool = True,
    checkpoint_dir: Path | str | None = None,
) -> tuple[list[History], History]:
    """Train each layer alone to let its input be reconstructed, then all of them together.

    Layer l is first trained as the encoder of an autoencoder of its own on what layer l - 1 gives, with
    `pretraining`; the last one under the KL penalty of the whole, if there is one. A free decoder then starts
    as the best affine map from the codes back to the states, by least squares. What follows is `train` with
    `config`, whose Histories (layers', whole's) are returned. Directories for checkpoints are
    `checkpoint_dir`/layer-1, ... and `checkpoint_dir`/joint. Without `generator` it is a new one with seed 0.

    Raises ValueError as `train` does. Source: Bengio et al. (2007), Greedy layer-wise training of deep networks.
    """
    if generator is None:
        generator = torch.Generator().manual_seed(0)
    directory = Path(checkpoint_dir) if checkpoint_dir is not None else None
    autoencoder.fit_normalisation(activations)
    histories = []
    for depth, layer in enumerate(autoencoder.encoder):
        last = depth == len(autoencoder.encoder) - 1
        single = StackedAutoencoder(
            layer.in_features,
            (layer.out_features,),
            autoencoder.activation,
            beta=autoencoder.beta if last else 0.0,
            rho=autoencoder.rho,
            generator=generator,
        ).to(layer.weight)
        histories.append(
            train(
                single,
                LayerInputs(autoencoder, activations, depth),
                pretraining,
                generator=generator,
                progress=progress,
                checkpoint_dir=directory and directory / f"layer-{depth + 1}",
            )
        )
        _take_over(layer, single)
    if not autoencoder.tied:
        _fit_decoder(autoencoder, activations)
    history = train(
        autoencoder,
        activations,
        config,
        generator=generator,
        labels=labels,
        progress=progress,
        checkpoint_dir=directory and directory / "joint",
    )
    return histories, history


@torch.no_grad()
def _take_over(layer: torch.nn.Linear, single: StackedAutoencoder) -> None:
    """Give a layer the weights of an autoencoder that centres and scales its inputs, which the layer does not."""
    trained, scale = single.encoder[0], single.d_model**0.5 / single.input_scale
    layer.weight.copy_(trained.weight * scale)
    layer.bias.copy_(trained.bias - layer.weight @ single.input_mean)


@torch.no_grad()
def _fit_decoder(autoencoder: StackedAutoencoder, activations: RowSource) -> None:
    """Set the decoder to the least squares map from codes to states, by sums over chunks in float64."""
    k, d = autoencoder.code_width, autoencoder.d_model
    gram = torch.zeros(k + 1, k + 1, dtype=torch.float64)
    moment = torch.zeros(k + 1, d, dtype=torch.float64)
    mean = autoencoder.input_mean
    for first in range(0, len(activations), CHUNK):
        x = autoencoder.normalise(activations[first : first + CHUNK].to(mean.device, mean.dtype))
        code = autoencoder._encode(x).to("cpu", torch.float64)
        code = torch.cat([code, code.new_ones(len(code), 1)], dim=1)
        gram += code.T @ code
        moment += code.T @ x.to("cpu", torch.float64) * d**0.5
    # A little ridge: units that never fire, or fire alike, leave the map undetermined.
    ridge = 1e-6 * gram.diagonal().mean() * torch.eye(k + 1, dtype=torch.float64)
    solved = torch.linalg.solve(gram + ridge, moment)
    autoencoder.decoder.weight.copy_(solved[:-1].T)
    autoencoder.decoder.bias.copy_(solved[-1])
