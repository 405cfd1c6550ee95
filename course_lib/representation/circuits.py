"""What a head is, seen from its weights: two circuits of low rank, and how the heads of a model compose.

Tokens are rows here, as in the rest of the library: q = x W_Q, scores = q k^T / sqrt(d_head), and a head adds A x W_V W_O
to the residual stream. Notes that write tokens as columns have the transposed matrices: their W_Q^T W_K is W_Q W_K^T here,
their W_O W_V is (W_V W_O)^T. No product of two factors is formed where it would be d_model x d_model, except where a
docstring says "to be read". Source: Elhage et al., "A Mathematical Framework for Transformer Circuits" (2021).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Bool, Complex, Float
from torch import Tensor

from course_lib.checks import named

Mode = Literal["Q", "K", "V"]
Kind = Literal["encoder", "decoder", "cross"]
MODES: tuple[Mode, ...] = ("Q", "K", "V")


def _check_floats(name: str, value: Tensor, ndim: int) -> None:
    if value.ndim < ndim or not value.is_floating_point():
        raise ValueError(
            f"{name} must be a floating-point tensor with at least {ndim} dimensions, "
            f"got {value.dtype} of shape {tuple(value.shape)}"
        )


# Products that stay factored


@dataclass(frozen=True)
class Circuit:
    """The matrix left @ right of rank r, or a stack of them, kept as its two factors.

    Shapes: `left` (..., n, r), `right` (..., r, m). Everything but `matrix` works on r x r matrices.

    Raises:
        ValueError: the factors do not fit together, or are not floating-point matrices.
    """

    left: Tensor
    right: Tensor

    def __post_init__(self) -> None:
        _check_floats("left", self.left, 2)
        _check_floats("right", self.right, 2)
        if self.left.shape[-1] != self.right.shape[-2]:
            raise ValueError(
                f"left and right must share their inner size, got {tuple(self.left.shape)} and {tuple(self.right.shape)}"
            )

    def matrix(self) -> Float[Tensor, "*heads n m"]:
        """The product itself, n x m: to be read, and for small models."""
        return self.left @ self.right

    def transposed(self) -> "Circuit":
        """The transposed circuit: K-composition reads W_QK from its other side."""
        return Circuit(self.right.mT, self.left.mT)

    def apply(self, x: Float[Tensor, "*rows n"]) -> Float[Tensor, "*rows m"]:
        """Rows times the circuit, x L R, from the left: 2 r numbers of work for each of n and m, not n m."""
        return x @ self.left @ self.right

    def then(self, other: "Circuit") -> "Circuit":
        """What two circuits do one after the other, L1 (R1 L2) R2: again of rank r."""
        return Circuit(self.left, self.right @ other.left @ other.right)

    def norm(self) -> Float[Tensor, "*heads"]:
        """||L R||_F by Gram matrices: its square is tr(R^T L^T L R) = sum_ij (L^T L)_ij (R R^T)_ij."""
        square = ((self.left.mT @ self.left) * (self.right @ self.right.mT)).sum(dim=(-2, -1))
        return square.clamp(min=0).sqrt()

    def singular_values(self) -> Float[Tensor, "*heads rank"]:
        """The r singular values that need not be zero, in decreasing order: those of R_L R_R^T of two QR factors."""
        return torch.linalg.svdvals(_triangle(self.left) @ _triangle(self.right.mT).mT)

    def eigenvalues(self) -> Complex[Tensor, "*heads rank"]:
        """The r eigenvalues that need not be zero: L R and R L have the same ones. The circuit must be square."""
        self._check_square()
        return torch.linalg.eigvals(self.right @ self.left)

    def symmetric_eigenvalues(self) -> Float[Tensor, "*heads twice_rank"]:
        """Eigenvalues of (M + M^T) / 2, up to 2 r of them, rising: x M x^T knows no other part of M (26.10).

        With F = [L, R^T] and the swap S of its halves the part is F S F^T / 2; with F = Q T it has the eigenvalues of
        T S T^T / 2. The circuit must be square.
        """
        self._check_square()
        triangle = _triangle(torch.cat([self.left, self.right.mT], dim=-1))
        swapped = triangle.roll(self.left.shape[-1], dims=-1)
        return torch.linalg.eigvalsh(swapped @ triangle.mT / 2)

    def _check_square(self) -> None:
        if self.left.shape[-2] != self.right.shape[-1]:
            raise ValueError(
                f"the circuit must be square to have eigenvalues, got {self.left.shape[-2]} x {self.right.shape[-1]}"
            )


def _triangle(factor: Tensor) -> Tensor:
    """T of factor = Q T with orthonormal columns of Q: whatever multiplies from its right sees only T."""
    return torch.linalg.qr(factor, mode="reduced" if factor.requires_grad else "r").R  # its gradient needs Q


# The heads of a model


@dataclass(frozen=True)
class Heads:
    """The weights of heads in row convention, one head after the other, with the place of each.

    Shapes: `w_q`, `w_k`, `w_v` (heads, d_model, d_head), `w_o` (heads, d_head, d_model); biases (heads, d_head), zeros
    where a model has none. The bias of the output projection belongs to no head and is left out. `layer`, `kind`, `number`
    (the head's place in its layer) and `module` (the name of the attention module) have one entry for each head. Grouped
    heads are written out: a key and value head stands once for each query head that reads it.

    Raises:
        ValueError: shapes or lengths do not fit together.
    """

    w_q: Float[Tensor, "heads d_model d_head"]
    w_k: Float[Tensor, "h1 d1 e1"]
    w_v: Float[Tensor, "h2 d2 e2"]
    w_o: Float[Tensor, "h3 e3 d3"]
    b_q: Float[Tensor, "h4 e4"]
    b_k: Float[Tensor, "h5 e5"]
    b_v: Float[Tensor, "h6 e6"]
    layer: tuple[int, ...]
    number: tuple[int, ...]
    kind: tuple[Kind, ...]
    module: tuple[str, ...]

    def __post_init__(self) -> None:
        _check_floats("w_q", self.w_q, 3)
        n, d_model, d_head = self.w_q.shape
        wanted = {name: (n, d_model, d_head) for name in ("w_k", "w_v")} | {"w_o": (n, d_head, d_model)}
        wanted |= {name: (n, d_head) for name in ("b_q", "b_k", "b_v")}
        for name, shape in wanted.items():
            if (got := tuple(getattr(self, name).shape)) != shape:
                raise ValueError(f"{name} must have shape {shape} to fit w_q, got {got}")
        for name in ("layer", "number", "kind", "module"):
            if (got := len(getattr(self, name))) != n:
                raise ValueError(f"{name} must have {n} entries, one for each head, got {got}")

    def __len__(self) -> int:
        return len(self.layer)

    @classmethod
    def decoder(cls, w_q: Tensor, w_k: Tensor, w_v: Tensor, w_o: Tensor) -> "Heads":
        """Heads without biases of a decoder from weights (layers, heads, ...), as an attention-only model has them."""
        _check_floats("w_q", w_q, 4)
        layers, heads, _, d_head = w_q.shape
        zero = w_q.new_zeros(layers * heads, d_head)
        place = [(layer, head) for layer in range(layers) for head in range(heads)]
        return cls(
            *(w.flatten(0, 1) for w in (w_q, w_k, w_v, w_o)), zero, zero, zero,
            layer=tuple(layer for layer, _ in place), number=tuple(head for _, head in place),
            kind=("decoder",) * len(place), module=tuple(f"layers.{layer}" for layer, _ in place),
        )  # fmt: skip

    def take(self, chosen: Sequence[int]) -> "Heads":
        """Some of the heads, in the order given. Raises ValueError for a head that is not there."""
        index = [int(i) for i in chosen]
        if bad := [i for i in index if not 0 <= i < len(self)]:
            raise ValueError(f"chosen must hold numbers from 0 to {len(self) - 1}, got {bad[0]}")
        tensors = {name: getattr(self, name)[index] for name in _TENSORS}
        places = {name: tuple(getattr(self, name)[i] for i in index) for name in _PLACES}
        return replace(self, **tensors, **places)

    def where(self, kind: Kind) -> list[int]:
        """The numbers of the heads of one kind: "encoder", "decoder" or "cross"."""
        return [i for i, found in enumerate(self.kind) if found == kind]

    def name(self, i: int) -> str:
        """A short name of head i: its kind, layer and place in the layer, from 0, as in "decoder 1.3"."""
        return f"{self.kind[i]} {self.layer[i]}.{self.number[i]}"

    def qk(self) -> Circuit:
        """W_QK = W_Q W_K^T, d_model x d_model of rank at most d_head (26.5): where a head looks."""
        return Circuit(self.w_q, self.w_k.mT)

    def ov(self) -> Circuit:
        """W_OV = W_V W_O, d_model x d_model of rank at most d_head (26.6): what it moves."""
        return Circuit(self.w_v, self.w_o)

    def change_basis(self, query_key: Float[Tensor, "*h e f"], value: Float[Tensor, "*h2 e2 f2"]) -> "Heads":
        """The same heads in other bases of their d_head dimensions: W_Q R, W_K R^-T, W_V S, S^-1 W_O (26.7).

        `query_key` R and `value` S are invertible, (d_head, d_head) or one for each head. Both circuits stay, and with
        the biases turned too the head does the same on every input.
        """
        back, out = torch.linalg.inv(query_key).mT, torch.linalg.inv(value)
        turn = lambda b, basis: (b[:, None] @ basis)[:, 0]  # noqa: E731
        return replace(
            self, w_q=self.w_q @ query_key, w_k=self.w_k @ back, w_v=self.w_v @ value, w_o=out @ self.w_o,
            b_q=turn(self.b_q, query_key), b_k=turn(self.b_k, back), b_v=turn(self.b_v, value),
        )  # fmt: skip


_TENSORS = ("w_q", "w_k", "w_v", "w_o", "b_q", "b_k", "b_v")
_PLACES = ("layer", "number", "kind", "module")


def circuit_gradients(
    circuit: Circuit, gradient: Float[Tensor, "*heads n m"]
) -> tuple[Float[Tensor, "*heads n rank"], Float[Tensor, "*heads rank m"]]:
    """Gradients of the two factors from that of their product, G: dL = G R^T and dR = L^T G.

    Since the loss depends on the product only, L^T dL = dR R^T: the factors cannot be told apart, and gradient flow
    keeps L^T L - R R^T, as it does for the two layers of a linear autoencoder.

    Raises:
        ValueError: `gradient` does not have the shape of the product.
    """
    shape = (*circuit.left.shape[:-1], circuit.right.shape[-1])
    if tuple(gradient.shape) != shape:
        raise ValueError(f"gradient must have the shape of the product, {shape}, got {tuple(gradient.shape)}")
    return gradient @ circuit.right.mT, circuit.left.mT @ gradient


# Composition


def composition(writer: Float[Tensor, "n m"], reader: Float[Tensor, "m2 k"]) -> Float[Tensor, ""]:
    """||W R||_F / (||W||_F ||R||_F) (26.8), to be read: of matrices that are formed. It lies in [0, 1].

    For a writer of W_OV and a reader of W_QK it is Q-composition, of W_QK^T K-composition, of W_OV V-composition.
    Random matrices of rank r in d dimensions score about 1 / sqrt(d), whatever r is.
    """
    return (writer @ reader).norm() / (writer.norm() * reader.norm())


def reads(heads: Heads, mode: Mode) -> Bool[Tensor, "writers readers"]:
    """Which head can compose with which: the reader's input of this mode holds what the writer wrote.

    In a stack, these are all heads of earlier layers. A cross head reads keys and values from the encoder's end, and its
    queries from the decoder, after the self-attention of its own layer.

    Raises:
        ValueError: `mode` is not "Q", "K" or "V".
    """
    if mode not in MODES:
        raise ValueError(f"mode must be one of {list(MODES)}, got {mode!r}")
    table = [[_can_read(heads, mode, a, b) for b in range(len(heads))] for a in range(len(heads))]
    return torch.tensor(table, device=heads.w_q.device)


def _can_read(heads: Heads, mode: Mode, writer: int, reader: int) -> bool:
    from_encoder = heads.kind[writer] == "encoder"
    if heads.kind[reader] == "cross" and mode != "Q":
        return from_encoder
    # In the decoder's stack, the cross-attention of a layer follows its self-attention.
    place = lambda i: (heads.layer[i], heads.kind[i] == "cross")  # noqa: E731
    return from_encoder == (heads.kind[reader] == "encoder") and place(writer) < place(reader)


@named
def composition_scores(heads: Heads) -> Float[Tensor, "modes writers readers"]:
    """Q-, K- and V-composition of all pairs (26.8), `composition` with no d_model x d_model matrix.

    A Frobenius norm does not see orthonormal factors. With V = Q_V T_V, K = Q_K T_K the score of a pair is the norm of
    the small matrix (T_V W_O)(W_Q T_K^T): all writers stand in one tall matrix, all readers of a layer in one wide one,
    and one product gives every pair. Norms come from the same triangles. Pairs without a path (`reads`) score 0, and so
    does a head whose circuit is zero.

    Shapes: (3, heads, heads): modes in the order of `MODES`, then writer, then reader. Units: none, in [0, 1].
    """
    n, d_model, d_head = heads.w_q.shape
    q, k, v, o = (_triangle(w) for w in (heads.w_q, heads.w_k, heads.w_v, heads.w_o.mT))
    writers = v @ heads.w_o  # (heads, d_head, d_model): ||W_OV x|| with the left end taken off
    readers = torch.stack([heads.w_q @ k.mT, heads.w_k @ q.mT, heads.w_v @ o.mT])
    writer_norms, reader_norms = writers.norm(dim=(1, 2)), readers.norm(dim=(2, 3))
    scores = heads.w_q.new_zeros(3, n, n)
    places = list(zip(heads.kind, heads.layer, strict=True))
    for m, mode in enumerate(MODES):
        for place in dict.fromkeys(places):
            chosen = [i for i, found in enumerate(places) if found == place]
            into = [i for i in range(n) if _can_read(heads, mode, i, chosen[0])]
            if into:
                wide = readers[m, chosen].transpose(0, 1).reshape(d_model, -1)
                product = (writers[into].reshape(-1, d_model) @ wide).view(
                    len(into), d_head, len(chosen), d_head
                )
                scores[m, torch.tensor(into)[:, None], chosen] = product.square().sum(dim=(1, 3)).sqrt()
    scale = writer_norms[None, :, None] * reader_norms[:, None, :]
    return torch.where(scale > 0, scores / torch.where(scale > 0, scale, 1), 0)


# From token to token


def token_path(
    embedding: Float[Tensor, "tokens d_model"],
    unembedding: Float[Tensor, "d2 vocabulary"],
    through: Circuit | None = None,
) -> Circuit:
    """The scores that one path gives to every next token, E W U, factored (26.11): from a token (row) to a token (column).

    Without `through` it is the direct path E U, of rank d_model. With a head's W_OV it is that head's effect on the
    logits for full attention to the token, of rank d_head: no table of tokens x tokens is formed.

    Raises:
        ValueError: shapes do not fit, or `through` holds more than one circuit.
    """
    if embedding.ndim != 2 or unembedding.ndim != 2 or embedding.shape[1] != unembedding.shape[0]:
        raise ValueError(
            "embedding must have shape (tokens, d_model) and unembedding (d_model, vocabulary), got "
            f"{tuple(embedding.shape)} and {tuple(unembedding.shape)}"
        )
    if through is None:
        return Circuit(embedding, unembedding)
    if through.left.ndim != 2 or through.left.shape[0] != embedding.shape[1]:
        raise ValueError(
            f"through must be one circuit on {embedding.shape[1]} dimensions, got factors of shape "
            f"{tuple(through.left.shape)} and {tuple(through.right.shape)}; take one head first"
        )
    return Circuit(embedding @ through.left, through.right @ unembedding)


def copying(path: Circuit) -> Float[Tensor, ""]:
    """sum_i Re lambda_i / sum_i |lambda_i| of a path's eigenvalues (26.11), in [-1, 1]: 1 where all are positive.

    A path E W_OV U with positive eigenvalues raises, on the whole, the scores of the tokens that it reads: it copies.
    """
    values = path.eigenvalues()
    return values.real.sum(-1) / values.abs().sum(-1)
