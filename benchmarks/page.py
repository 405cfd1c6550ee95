# ruff: noqa: E501, a sentence of a row is not cut for its length
"""The page of measurements, benchmarks/README.md, and the headline rows of README.md: pure functions of what is stored.

`python -m benchmarks --page` writes both, and a test compares them with what stands there.
"""

import json
import re
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from statistics import median

from benchmarks import rooflines
from course_lib.measured import measured, origin, parts, quote

ROOT = Path(__file__).resolve().parents[1]
SCORES = (
    ROOT / "course_lib" / "mbart" / "course-mbart" / "scores.json"
)  # written by `pretrain`, with the weights
Row = tuple[str, str]

attention = partial(quote, "attention")
pipeline = partial(quote, "pipeline", spec=",.10g")
spread = partial(quote, quartiles=True)


def share(part: str, name: str) -> str:
    return f"{measured(part, name):.0f}%"


def counted(name: str, *what: str) -> str:
    """Return shares of the cases of an experiment on causes."""
    found = measured("causes", name)
    return ", ".join(f"{100 * found[key] / found['n']:.0f}%" for key in what)


def explorer_rows() -> list[Row]:
    named = json.loads(SCORES.read_text(encoding="utf-8"))
    right, found, hard = (
        f"{100 * named[name]:.1f}%"
        for name in ("translation_exact_match", "retrieval_top1", "hard_retrieval_top1")
    )
    return [
        (
            "one frame of a plain two-curve explorer, kernel time",
            f"{spread('explorer', 'explorer, ms of kernel time a frame', '.1f')} ms",
        ),
        (
            "the same figure under `ipywidgets.interact`, same run",
            f"{spread('explorer', 'interact, ms of kernel time a frame', '.1f')} ms, "
            f"{spread('explorer', 'interact / explorer', '.1f')} times as long",
        ),
        (
            "`course-mbart` on held-out meanings: greedy translations equal to the right one; retrieval of the translation "
            f"among 1,000 sentences; among {named['hard_retrieval_candidates']:.1f} that differ in one concept",
            f"{right}; {found}; {hard}",
        ),
        (
            "the feature browser on 8,192 features, 100,000 sentences and "
            f"{quote('browse', 'active entries, millions', '.1f')} million active entries, wall time on a busy machine: "
            "open, answer for a feature, for the 20 most frequent, the slowest",
            f"{spread('browse', 'open, ms', '.0f')} ms, {spread('browse', 'a feature, ms', '.0f')} ms, "
            f"{spread('browse', 'a feature, the 20 most frequent, ms', '.0f')} ms, "
            f"{quote('browse', 'a feature, the slowest, ms', '.0f')} ms",
        ),
    ]


def pipeline_rows() -> list[Row]:
    def of(group: str) -> str:
        total, reached = measured("pipeline", f"F1 0.9, {group}: concepts, of which")
        return f"{reached} of {total}"

    categories = ("place", "verb", "determiner", "time", "role", "person", "size")
    f1, two, shared = "F1 0.9, %", "F1 0.9 of two together, %", "same feature at F1 0.8 in three languages, %"
    single = (
        f"{pipeline(f'{name}: {f1}')}%" for name in ("neurons", "principal components", "random features")
    )
    by_token = ("neurons", "principal components", "random features", "random directions")
    again = ", ".join(f"{pipeline(f'features, two threads: {name}')}%" for name in (f1, two, shared))
    return [
        (
            f"the pipeline on `course-mbart` and its built-in corpus, {pipeline('sentences')} sentences, one run each on an "
            "idle machine: with its default of one thread; with `--threads 2`",
            f"{pipeline('seconds, one thread')} s; {pipeline('seconds, two threads')} s",
        ),
        (
            "its stacked autoencoder, 256 to 32: explained variance on held-out sentences",
            f"{pipeline('stacked: variance explained on held-out sentences, %')}% "
            f"({pipeline('stacked: variance explained in training, %')}% in training, PCA bound there "
            f"{pipeline('stacked: PCA bound in training, %')}%)",
        ),
        (
            "its sparse autoencoder, 2,048 features, 8 active at a token: explained variance on held-out tokens",
            f"{pipeline('sparse: variance explained on held-out tokens, %')}%, "
            f"{pipeline('sparse: features dead in training')} features dead in training",
        ),
        (
            "lexical concepts that one unit detects on held-out sentences (F1 0.9 or more, unit and threshold chosen in "
            f"training, all {pipeline('lexical concepts')} scored): sparse features",
            f"{pipeline(f'features: {f1}')}%; two features together {pipeline(f'features: {two}')}%; the same feature at F1 "
            f"0.8 or more in three languages {pipeline(f'features: {shared}')}% (with two threads {again})",
        ),
        (
            "the same: neurons, principal components, random features; a probe on all dimensions",
            f"{', '.join(single)}; {pipeline(f'probe on all dimensions: {f1}')}%",
        ),
        (
            "by token, median over the concepts (the same run): the best feature's precision, recall and F1 at the tokens of "
            "the concept's words; the share of words in which it fires",
            ", ".join(
                quote("pipeline", f"tokens: median {what}", ".2f") for what in ("precision", "recall", "F1")
            )
            + f"; {pipeline('tokens: words in which it fires, median %')}%",
        ),
        (
            "the same F1: neurons, principal components, random features, random directions",
            ", ".join(quote("pipeline", f"tokens, {name}: median F1", ".2f") for name in by_token),
        ),
        (
            "F1 0.9 of nouns, adjectives and places; verbs; times; determiners (the same run)",
            "; ".join(
                of(group) for group in ("nouns, adjectives and places", "verbs", "times", "determiners")
            ),
        ),
        (
            f"of the {pipeline('below F1 0.9')} concepts below F1 0.9, features that fire or not by grammar or language, 0.25 or "
            "more beyond chance; that fire for another word; neither",
            "; ".join(
                pipeline(f"below F1 0.9: {why}")
                for why in ("split by grammar or language", "also another word's", "neither")
            ),
        ),
        (
            f"absorption, mean over {pipeline('absorbed: words')} words: a word's own feature fires and its category's best "
            "feature is silent; for a random other category",
            f"{pipeline('absorbed, mean %')}%; {pipeline('absorbed by a random other category, mean %')}%",
        ),
        (
            f"the same for the categories whose best feature has an F1 of 0.5 or more: {', '.join(categories)}",
            ", ".join(f"{pipeline(f'absorbed, {name}, %')}%" for name in categories),
        ),
    ]


def across_row() -> Row:
    """The row on words that English sentences choose: the median of the five draws, elsewhere and in English."""
    draws = "across_languages"

    def shares(arm: str) -> str:
        own, others = (
            median(measured(draws, f"{arm}: {where}, %")) for where in ("English", "the three others")
        )
        return f"{others:.0f}% / {own:.0f}%"

    def best_lda(told: str, fit: str = "LDA") -> str:
        names = [f"{fit}, told {told}, shrinkage {one:g}" for one in measured(draws, "shrinkages")]
        return max(names, key=lambda name: median(measured(draws, f"{name}: the three others, %")))

    arms = {
        "features": "dictionary",
        "features, of equally good ones the most active": "dictionary, strongest of equals",
        "features of the untrained model": "dictionary of the untrained model",
        "word pieces": "word pieces",
        "centres of k-means": "k-means, cosine",
        "difference of means": "difference of means, told sentences",
        "LDA with the shrinkage that is best elsewhere": best_lda("sentences"),
        "the same fitted again on each sentence's strongest token": best_lda("sentences", "LDA refitted"),
        "the latter with the shrinkage that is best in English": "LDA refitted, told sentences",
        "LDA told which tokens are the word": best_lda("tokens"),
    }
    return (
        "words found in German, French and Spanish alike (F1 0.8 or more in each) by a unit and threshold chosen on 1,600 "
        "labelled English sentences, and, after the stroke, in held-out English (F1 0.9 or more); medians of five draws",
        "; ".join(f"{name} {shares(arm)}" for name, arm in arms.items()),
    )


def feature_rows() -> list[Row]:
    run = "course-mbart encoder, 2048 features, k = 8, 2000 steps of 0.004"
    used, untrained = f"{run}, betas 0.9 and 0.9", "course-mbart encoder, 2048 features, k = 8, untrained"
    kinds = (
        "TopK + AuxK",
        "BatchTopK",
        "JumpReLU",
        "gated",
        "ReLU + L1",
        "Matryoshka TopK",
        "Matryoshka BatchTopK",
    )
    sweep = "{} encoder, 2048 features, k = 8, 2000 steps of 0.003: {}"
    at_f1, shared = "F1 0.9, %", "same unit at F1 0.8 in three languages, %"
    on_gpu = " and ".join(
        f"{share('gpu/features', sweep.format(model, at_f1))}, {share('gpu/features', sweep.format(model, shared))}"
        for model in ("course-mbart", "course-mbart-unaligned")
    )
    unlike = "AUROC of an unlike past"
    off, exchanged = "encoder, switched off: ", "encoder, exchanged for a noun of its kind: "
    controls = (
        "another active feature",
        "unnamed active feature",
        "best neuron, its mean",
        "random direction, as far as detector",
        "reconstruction, all tokens",
    )
    cases = measured("causes", f"{off}detector")["n"]
    spoken = f"{exchanged}features, 0.05"
    direction = f"{exchanged}control: random direction, as far as features, 0.05"
    unnamed = f"{exchanged}control: unnamed feature for the other's, twice as strong"
    changes = ("changed", "elsewhere", "aimed")
    return [
        across_row(),
        (
            f"verbs that tense divides ({quote('features', f'{used}: verbs split by tense', '.0f')} of 62, two seeds): AUROC of "
            "how unlike their past form is; of shuffled verbs the highest 5%; verbs that untrained features divide",
            f"{quote('features', f'{used}: {unlike}')}; "
            f"{quote('features', f'{used}: the same, verbs shuffled, highest 5%')}; "
            f"{quote('features', f'{untrained}: {unlike}')}",
        ),
        (
            f"F1 0.9 in another benchmark of {quote('features', f'{used}: concepts scored', '.0f')} concepts, two seeds: TopK "
            "with Adam's usual betas and with (0.9, 0.9)",
            f"{share('features', f'{run}: {at_f1}')} and {share('features', f'{used}: {at_f1}')}",
        ),
        (
            "the same with (0.9, 0.9): AuxK, BatchTopK, JumpReLU, gated, ReLU with L1, Matryoshka of TopK and of BatchTopK",
            ", ".join(share("concept_kinds", f"{kind}: {at_f1}") for kind in kinds),
        ),
        (
            "2,048 features trained on an H100 for 2,000 steps of 0.003, three seeds or more, on the encoder of `course-mbart` "
            "and of `course-mbart-unaligned`, which was trained without the contrastive loss: F1 0.9, and shared by three "
            "languages",
            on_gpu,
        ),
        (
            f"a word's one feature switched off in the encoder, {cases} translations, two dictionaries: the word changes, "
            "anything else changes; the same for all features of which a fifth or more of the firings are at that word, "
            f"{quote('causes', 'features of a concept at 0.2', '.0f')} in the mean",
            f"{counted(f'{off}detector', *changes[:2])}; {counted(f'{off}features, 0.2', *changes[:2])} "
            f"(nouns {counted('encoder, switched off, noun: features, 0.2', *changes[:2])})",
        ),
        (
            "the same for another active feature, an unnamed one, the best neuron, a random direction as far, the "
            "reconstruction alone: the word changes",
            ", ".join(counted(f"{off}control: {name}", "changed") for name in controls),
        ),
        (
            "a noun's features (a twentieth or more) exchanged for those of another noun of its kind: the word changes, anything "
            "else does, the translation is exactly the one with that other noun",
            f"{counted(spoken, *changes)} (a random direction as far: {counted(direction, *changes)}; an unnamed feature in the "
            f"other noun's place, twice as strong: {counted(unnamed, *changes)})",
        ),
    ]


def reading_rows() -> list[Row]:
    def read(name: str) -> str:
        return spread("extraction", name, ".2f")

    def step(name: str, spec: str) -> str:
        return spread("sae", name, spec)

    def before(name: str, spec: str) -> str:
        return spread("sae_elsewhere", name, spec)

    integers, integers_before = (
        measured(part, "TopK: floor, products alone / ours")
        / measured(part, "TopK: its product alone in float32 / ours")
        for part in ("sae", "sae_elsewhere")
    )

    return [
        (
            "`extract` without padding, mBART-large's width, 256 sentences: share of the speed of its matrix products alone",
            f"float32 {read('matrix products alone / packed, float32')}, "
            f"bfloat16 {read('matrix products alone / packed, bfloat16')}",
        ),
        (
            "the same against padded batches of 32 sorted by characters, and against one sentence at a time in float32",
            f"float32 {read('character-sorted batches of 32 / packed, float32')} and "
            f"{read('naive float32 loop / packed, float32')} times as fast, "
            f"bfloat16 {read('character-sorted batches of 32 / packed, bfloat16')} and "
            f"{read('naive float32 loop / packed, bfloat16')}",
        ),
        (
            "the same in batches sorted by tokens: ONNX Runtime; OpenVINO in float32 and in bfloat16",
            f"{read('ONNX Runtime, float32 / packed')}; {read('OpenVINO, float32 / packed')} and "
            f"{read('OpenVINO, bfloat16 / packed')} times the time",
        ),
        (
            "a training step of TopK, 1,024 to 8,192, k = 32, 4,096 rows, against SAELens, sparsify, and its own matrix product "
            "alone in float32",
            f"{step('TopK: SAELens TopK / ours', '.1f')}, {step('TopK: sparsify TopK / ours', '.1f')} and "
            f"{step('TopK: its product alone in float32 / ours', '.2f')} times as fast on an {origin('sae')['machine']['model']}, "
            f"where the product in 8-bit integers takes {integers:.2f} of the time of float32's; before its last two changes "
            f"{before('TopK: SAELens TopK / ours', '.1f')}, {before('TopK: sparsify TopK / ours', '.1f')} and "
            f"{before('TopK: its product alone in float32 / ours', '.2f')} where it takes {integers_before:.2f}",
        ),
        (
            "the same of ReLU with L1, against SAELens",
            f"{step('ReLU + L1: SAELens ReLU + L1 / ours', '.1f')} and "
            f"{before('ReLU + L1: SAELens ReLU + L1 / ours', '.1f')} times as fast on these two",
        ),
    ]


def floor_rows() -> list[Row]:
    """Return where code of the course stands above what it cannot do without, or above a goal, and why."""

    def share(title: str) -> str:
        return spread("sae", f"{title}: floor with memory traffic / ours", ".2f")

    def lora(what: str) -> str:
        return spread("lora", f"fp32, 512 rows: {what} / PEFT", ".2f")

    return [
        (
            "a training step of TopK: its floor (the product in 8-bit integers, Adam, one look at all pre-activations), share "
            "of the step",
            f"{share('TopK')}; the rest is choosing the largest 48 of 8,192 in each row, their exact products, and the sums of "
            "two sparse gradients",
        ),
        ("of ReLU with L1: five products and Adam", share("ReLU + L1")),
        (
            "of a bottleneck of 128 with ReLU: four products and Adam",
            f"{share('1024 -> 128')}; the rest is passes over the 4,096 x 1,024 states, and products whose operands do "
            "not lie as they like best",
        ),
        (
            "a token of quadratic `linear_attention` from its state: times a copy of its sums",
            f"{spread('attention', 'a token, quadratic / memory-traffic floor', '.2f')}; each token reads the sums, and "
            "a block of tokens is written to them at once; the rest makes 2,145 features and compares with the block",
        ),
        (
            "`LoRALinear`, 512 rows: time over PEFT's, and that of the frozen weight alone",
            f"{lora('LoRALinear')}, {lora('floor (frozen W)')}; between them stand the products of rank 8",
        ),
        (
            "a selective scan with 64 numbers of state: time over a loop that unbinds its inputs",
            f"{spread('state_space', 'selective / loop over unbind, N = 64', '.2f')}; 16 numbers "
            f"{spread('state_space', 'selective / loop over unbind, N = 16', '.2f')}",
        ),
    ]


def optimization_rows() -> list[Row]:
    def drift(model: str) -> str:
        def of(kind: str, what: str, spec: str) -> str:
            return spread("mup", f"{model}, {kind}: {what}", spec)

        lost = "regret, loss / smallest loss"
        return (
            f"{of('muP', 'drift, octaves', '.2f')}, {quote('mup', f'{model}, muP: {lost}', '.2f')}; standard parametrization "
            f"{of('SP', 'drift, octaves', '.1f')}, {of('SP', lost, '.1f')}"
        )

    def error(spectrum: str, method: str) -> str:
        return quote("newton_schulz", f"error on {spectrum} 1024x1024, {method}")

    ours, theirs = "Polar Express 5, bfloat16", "torch.optim.Muon's"
    return [
        (
            "muP, best step size from width 32 to 512 (MLP, 4 seeds): drift in octaves, loss at the narrow network's step size "
            "over the best",
            drift("perceptron"),
        ),
        ("the same for a transformer, width 16 to 256 (3 seeds)", drift("transformer (cpu)")),
        (
            "`orthogonalize`, five steps in bfloat16, 1024 x 1024, against `torch.optim.Muon`'s",
            f"{spread('newton_schulz', f'1024x1024: {ours} / {theirs}', '.2f')} times the time, error "
            f"{error('gaussian', ours)} against {error('gaussian', theirs)} (Gaussian), {error('1/k', ours)} against "
            f"{error('1/k', theirs)} (singular values 1/k)",
        ),
        (
            "the same at 4096 x 1024",
            f"{spread('newton_schulz', f'4096x1024: {ours} / {theirs}', '.2f')} times the time",
        ),
        (
            "a step of `Muon` (8 matrices 512 x 512, 4 of 2048 x 512) against `torch.optim.Muon`",
            spread(
                "newton_schulz",
                "step on 8 matrices 512x512 and 4 of 2048x512: Muon / torch.optim.Muon",
                ".2f",
            )
            + " times the time",
        ),
    ]


def attention_rows() -> list[Row]:
    def crossing(name: str) -> str:
        return f"{round(measured('attention', f'crossover N measured, {name}'), -1):,.0f}"

    def ratio(name: str) -> str:
        return spread("attention", name, ".2f")

    caches = ("1,000", "4,000", "16,000")
    quadratic = [ratio(f"a token, quadratic / softmax with a cache of {n}") for n in caches]
    elu = [attention(f"a token, elu / softmax with a cache of {n}", ".2f") for n in caches]
    rope = "RoPE {}, float32, forward, cpu: ours / transformers"
    return [
        (
            "quadratic `linear_attention`, head_dim 64, against `scaled_dot_product_attention`",
            f"faster from {crossing('quadratic kernel, no mask')} tokens on, causal from "
            f"{crossing('quadratic kernel, causal')}; {attention('quadratic kernel / SDPA, no mask, N=32768', '.2f')} and "
            f"{attention('quadratic kernel / SDPA, causal, N=32768', '.2f')} times the time at 32,768",
        ),
        (
            "causal `random_feature_attention`, 256 features",
            f"faster from {crossing('random features, causal')} tokens on; "
            f"{attention('random features / SDPA, causal, N=32768', '.2f')} times the time at 32,768",
        ),
        (
            "`ridge_attention` in chunks against the Sherman-Morrison token loop, 4,096 tokens",
            f"{ratio('1 x 4096: chunk / Sherman-Morrison loop')} times the time",
        ),
        (
            "a token of `linear_attention` from its state, 16 heads of 64, against `scaled_dot_product_attention` with "
            "1,000, 4,000 and 16,000 tokens in its cache",
            f"quadratic {quadratic[0]}, {quadratic[1]} and {quadratic[2]} times the time, elu {elu[0]}, {elu[1]} and {elu[2]}; "
            f"the quadratic one {ratio('a token, quadratic / memory-traffic floor')} times that of a copy of its sums",
        ),
        (
            "`decay` in chunks, one for each token, against none: elu at 8,192 tokens",
            f"{ratio('decay in chunks, elu / without decay, N=8,192')} times the time",
        ),
        (
            "`delta_rule` in chunks against its token loop, 4,096 tokens",
            f"{ratio('delta rule in chunks / its loop, N=4,096')} times the time",
        ),
        (
            "`rope`, float32, against transformers' Llama",
            f"{ratio(rope.format('interleaved'))} times the time interleaved, {ratio(rope.format('half'))} in the half layout",
        ),
    ]


def matrix_rows() -> list[Row]:
    shapes = ("(12, 12, 8)", "(50, 50, 24)", "(100, 100, 24)")
    prox = [spread("hawkes", f"prox / faster SVDs, {shape}, float64", ".2f") for shape in shapes]
    lost = quote("pca", "variance lost, flat spectrum: auto", ".1f", scale=100)
    return [
        (
            f"exact `pca`, 20,000 x 1,024 to 32 components, against scikit-learn's `auto`, which loses {lost}% of a flat "
            "spectrum",
            f"{spread('pca', 'pca / scikit-learn auto, torch.float64', '.2f')} times the time in float64, "
            f"{spread('pca', 'pca / scikit-learn auto, torch.float32', '.2f')} in float32, "
            f"{spread('pca', 'pca, products in float32 / scikit-learn auto, torch.float32', '.2f')} there with products in float32",
        ),
        (
            "erasing a concept, 20,000 x 768, ten classes, fit and erase, against concept-erasure",
            f"{spread('erasure', 'fit and erase / concept-erasure', '.2f')} times the time",
        ),
        (
            "`LoRALinear`, 1,024 x 1,024, rank 8, 512 and 4,096 rows, forward and backward, against PEFT",
            f"{spread('lora', 'fp32, 512 rows: LoRALinear / PEFT', '.2f')} and "
            f"{spread('lora', 'fp32, 4096 rows: LoRALinear / PEFT', '.2f')} times the time",
        ),
        (
            "composition scores of all pairs of 144 heads, against TransformerLens",
            f"{spread('circuits', 'composition_scores / all_composition_scores, Q + K + V', '.3f')} times the time",
        ),
        (
            "proximal map of the tensor nuclear norm, float64, against the faster SVDs of all slices",
            f"{prox[0]} times the time at 12 x 12 x 8, {prox[1]} at 50 x 50 x 24, {prox[2]} at 100 x 100 x 24",
        ),
        (
            "`socp` of a lattice of side 10 and 18, build and solve, against CVXPY with the same solver",
            f"{spread('socp', 'k = 10: direct / through CVXPY', '.2f')} and "
            f"{spread('socp', 'k = 18: direct / through CVXPY', '.2f')} times the time",
        ),
    ]


def table(rows: Iterable[Row]) -> str:
    """Return rows as Markdown."""
    return "\n".join(["| what | figure |", "|---|---|", *(f"| {what} | {figure} |" for what, figure in rows)])


SECTIONS = {
    "Explorers, the shipped model and the feature browser": explorer_rows,
    "The pipeline, one run": pipeline_rows,
    "Features and concepts": feature_rows,
    "Reading states and training autoencoders": reading_rows,
    "How far from the floor": floor_rows,
    "Optimisation": optimization_rows,
    "Attention": attention_rows,
    "Representation and theory": matrix_rows,
}


def on_a_gpu() -> str:
    """Return the paragraph on the GPU."""

    def times(name: str, spec: str = ".0f") -> str:
        return quote("gpu/attention", name, spec)

    newer = "gpu/quadratic_on_gpu"

    def against(kind: str) -> str:
        return quote(newer, f"linear / SDPA, {kind}", ".2f")

    def crossings(d: int) -> str:
        found = (
            quote(newer, f"crossover N measured, {kind}, D={d}, {pass_}", ",.0f")
            for kind in ("no mask", "causal")
            for pass_ in ("forward", "forward and backward")
        )
        return "{} and {}, causal {} and {}".format(*found)

    return (
        f"On an {origin(newer)['machine']['gpu']} (torch {origin(newer)['versions']['torch']}, bfloat16, wall time, 16 heads; "
        "`course_lib/measured/gpu`) quadratic `linear_attention` is faster than `scaled_dot_product_attention` from these "
        f"lengths on, forward and forward with backward: head_dim 64, {crossings(64)} tokens; head_dim 16, {crossings(16)}. "
        f"At 32,768 tokens and head_dim 64 it takes {against('no mask, D=64, forward and backward, N=32768')} of the time, "
        f"causal {against('causal, D=64, forward and backward, N=32768')}; at 4,096 "
        f"{against('no mask, D=64, forward and backward, N=4096')} and "
        f"{against('causal, D=64, forward and backward, N=4096')} times as long. Multiply-adds are equal at "
        f"{quote(newer, 'N where multiply-adds are equal, quadratic, D=64, no mask', ',.0f')} tokens "
        f"({quote(newer, 'N where multiply-adds are equal, quadratic, D=64, causal', ',.0f')} if causal). Of the floor, "
        "multiply-adds with each pair of entries counted once at the rate of a large product of matrices "
        f"({quote(newer, 'bfloat16 product of matrices, TFLOP/s', '.0f')} TFLOP/s), it reaches "
        f"{quote(newer, 'share of the floor, no mask, D=64, forward, N=65536', '.0%')} forward at head_dim 64 and 65,536 tokens "
        f"({quote(newer, 'share of the floor, causal, D=64, forward, N=65536', '.0%')} causal), and "
        f"{quote(newer, 'share of the floor, no mask, D=16, forward, N=65536', '.0%')} at head_dim 16, where launches cost more "
        "than arithmetic. flash-linear-attention's `parallel_rebased`, which compares all pairs, takes "
        f"{quote(newer, 'rebased / SDPA, causal, D=64, forward, N=32768', '.2f')} times as long as torch's at 32,768 tokens and "
        f"head_dim 64 (causal, forward). In float32 at 8,192 tokens and head_dim 64 ours takes "
        f"{against('no mask, D=64, forward, float32, N=8192')} of the time of torch's, causal "
        f"{against('causal, D=64, forward, float32, N=8192')}. "
        f"Before these kernels, on an {origin('gpu/attention')['machine']['gpu']} and in float32, it took "
        f"{times('linear / SDPA, D=64, GPU, 16 heads, N=4096')} times as long at 4,096 tokens and "
        f"{times('linear / SDPA, D=16, GPU, N=8192')} times at head_dim 16 and 8,192 tokens. `attention` takes "
        f"{times('cuda, N = 512: attention, 4-D / torch, 4-D', '.2f')} and "
        f"{times('cuda, N = 2048: attention, 4-D / torch, 4-D', '.2f')} times as long as torch's own call on the same tensors "
        "(512 and 2,048 tokens). `tests/test_on_a_gpu.py` tries the public functions of architectures, attention, optimization, "
        "representation, sae and theory there, forward and backward, against the CPU (what draws its own numbers on the device, "
        "and `orthogonalize` in bfloat16, in shape only), and that no training step of an autoencoder waits for the device."
    )


def _versions(about: dict) -> str:
    return ", ".join(f"{name} {number or '?'}" for name, number in about["versions"].items())


def _machine(about: dict) -> str:
    machine = about["machine"] or {}
    words = [
        machine.get("gpu"),
        machine.get("model"),
        f"{machine['cores']} cores" if machine.get("cores") else None,
        machine.get("processor"),
    ]
    return ", ".join(word for word in words if word) or "not noted"


def _command(about: dict) -> str:
    return f"`{about['command']}`" if about["command"] else about["note"]


def origins() -> str:
    """Return a table of all stored parts: when, where, with what, and the command that repeats them."""
    rows = ["| part | date | machine | versions | again by |", "|---|---|---|---|---|"]
    for part in parts():
        about = origin(part)
        rows.append(
            f"| {part} | {about['date']} | {_machine(about)} | {_versions(about)} | {_command(about)} |"
        )
    return "\n".join(rows)


def page() -> str:
    """Return benchmarks/README.md."""
    sections = "\n\n".join(f"## {title}\n\n{table(rows())}" for title, rows in SECTIONS.items())
    return f"""# What was measured

`python -m benchmarks --page` writes this page from what is stored in `course_lib/measured`; `make bench PART` measures a part again, `python -m benchmarks PART --save` stores it, and `python -m benchmarks --list` names the parts. Unless a row says otherwise: a 2-core x86-64 machine without GPU or AMX, which multiplies 8-bit integers fast (AVX-512 VNNI); medians with quartiles in brackets; ratios are CPU time of one thread, both candidates in turn.

{sections}

## On a GPU

{on_a_gpu()}

### What counting allows there

A call takes at least as long as its multiply-adds at the machine's rate, and as long as its inputs and outputs at the rate of the memory (`benchmarks/rooflines.py`; an H200's data sheet: {rooflines.TFLOPS["bfloat16"]:g} TFLOP/s in bfloat16, {1e-12 * rooflines.BANDWIDTH:g} TB/s, so {rooflines.balance("bfloat16"):.0f} multiply-adds a byte are balanced). The last five columns are the lengths from which softmax attention has the higher bound. In bfloat16 every form but the quadratic one with head_dim 64 is held up by its bytes, and so is softmax attention up to {rooflines.softmax_balance("bfloat16"):,.0f} tokens: below that length the count gives none of them a lead. Exponentials, features and launches are not counted. The delta rule and ridge attention are counted token by token; the chunks that a GPU needs multiply more.

{rooflines.table()}

## Where each part comes from

What is not known of a stored run is left out or marked "?".

{origins()}
"""


def headlines() -> str:
    """Return the rows of README's section "Measured"."""
    chosen = [
        explorer_rows()[0],
        pipeline_rows()[0],
        pipeline_rows()[3],
        across_row(),
        reading_rows()[3],
        attention_rows()[0],
        matrix_rows()[3],
    ]
    return table(chosen)


def with_headlines(readme: str) -> str:
    """Return README with its section "Measured" as it follows from the store."""
    section = (
        "## Measured\n\n"
        "On a 2-core x86-64 machine, no GPU; medians with quartiles. All measurements, with machine, date, versions and the "
        "command that repeats each, are on a [page of their own](benchmarks/README.md).\n\n"
        f"{headlines()}\n"
    )
    found, count = re.subn(
        r"^## Measured\n.*?(?=^## |\Z)", lambda _: section + "\n", readme, flags=re.M | re.S
    )
    if count != 1:
        raise ValueError(f"README must have one section '## Measured', found {count}")
    return found.rstrip("\n") + "\n"


def write() -> None:
    """Write both pages."""
    (ROOT / "benchmarks" / "README.md").write_text(page(), encoding="utf-8")
    readme = ROOT / "README.md"
    readme.write_text(with_headlines(readme.read_text(encoding="utf-8")), encoding="utf-8")
