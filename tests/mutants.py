"""Slips planted in the library, one at a time, to see whether the tests notice: `make mutants`.

`python -m tests.mutants` plants each of them in a copy of the tree and runs the tests of its part; names choose some.
With `--unchanged` the same tests run without any slip: all have to pass, else a caught mutant says nothing.
A mutant that does not apply has lost the text that it changes: aim it at what stands there now.

Why a list and not mutmut (3.8.1, tried on two modules with the one test file of each, one process, on a busy machine):
it makes 172 mutants of `sae/losses.py` (169 lines), of which 143 are caught, in 4 min 7 s, and 266 of
`theory/tensor_nuclear_norm.py` (131 lines), 249 caught, in 5 min 38 s: one to two a line, at one a second. Its mutants
swap operators and constants and drop arguments; the survivors of losses are for a third wording of errors, and others
change nothing (`dim=+1` of a matrix, a dtype that is the same). The slips here are what somebody who knows the
mathematics gets wrong: a gradient that is not detached, a state that is not restored, rows out of step with labels.
Most take more than one token. mutmut is worth a run by hand on a module that is new.
"""

import argparse
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
COPIED = ("benchmarks", "course_lib", "tests", "notebooks", "pyproject.toml")
# A loop that a mutant makes endless ends here. It is CPU time of one process: a busy machine changes nothing.
CPU_LIMIT_S = 1200


class Mutant(NamedTuple):
    """One slip: the text `old`, which the package holds exactly once, becomes `new`, and `tests` should fail.

    `file` says where in the package the text stood; where it has moved, it is found by itself. Blanks and line
    ends in `old` match any others.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


def sources(package: Path) -> dict[str, str]:
    """Return the text of each module by its path in the package."""
    return {str(p.relative_to(package)): p.read_text(encoding="utf-8") for p in package.rglob("*.py")}


def pattern_of(mutant: Mutant) -> re.Pattern:
    """Return what finds the text that the mutant changes."""
    return re.compile(r"\s+".join(map(re.escape, mutant.old.split())))


def place_of(mutant: Mutant, texts: dict[str, str]) -> str:
    """Return the one path whose text holds what the mutant changes.

    Raises ValueError where the text does not occur exactly once.
    """
    found = [path for path, text in texts.items() for _ in pattern_of(mutant).finditer(text)]
    if len(found) != 1:
        raise ValueError(f"its text occurs {len(found)} times{': ' if found else ''}{', '.join(found)}")
    return found[0]


def plant(mutant: Mutant, package: Path) -> str:
    """Change the package; return where the text was found, if not where it was expected.

    Raises ValueError where the text does not occur exactly once.
    """
    texts = sources(package)
    place = place_of(mutant, texts)
    changed = pattern_of(mutant).sub(lambda _: mutant.new, texts[place])
    (package / place).write_text(changed, encoding="utf-8")
    return "" if place == mutant.file else f"in {place}"


def existing(tests: tuple[str, ...], tree: Path) -> list[str]:
    """Return the paths that exist; in the place of one that is gone, its directory."""
    chosen = []
    for path in tests:
        if not (tree / path).exists():
            print(f"  {path} is gone, taking {Path(path).parent}", file=sys.stderr)
            path = str(Path(path).parent)
        if (tree / path).exists() and path != "tests":
            chosen.append(path)
    return list(dict.fromkeys(chosen))


def run(tests: tuple[str, ...], mutant: Mutant | None = None) -> tuple[str, float, str]:
    """Run the tests on a copy with the mutant in it; return the verdict, CPU seconds and what there is to say."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        tree = Path(folder) / "tree"
        tree.mkdir()
        for name in COPIED:
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, tree / name)
        for cache in list(tree.rglob("__pycache__")):
            shutil.rmtree(cache)
        try:
            moved = plant(mutant, tree / "course_lib") if mutant else ""
        except ValueError as error:
            return "did not apply", 0.0, str(error)
        if not (chosen := existing(tests, tree)):
            return "no tests", 0.0, f"none of {', '.join(tests)} is there"
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        ran = subprocess.run(
            [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider", "--tb=no",
             f"--basetemp={folder}/temporary", "--jaxtyping-packages=course_lib,beartype.beartype", *chosen],
            cwd=tree,
            env=os.environ | {"PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1", "TMPDIR": folder},
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (CPU_LIMIT_S, CPU_LIMIT_S)),
            capture_output=True,
            text=True,
        )  # fmt: skip
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", ran.stdout, flags=re.MULTILINE)
    said = failed[1] if failed else ""
    if ran.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        return "caught", seconds, f"stopped after {CPU_LIMIT_S} s of CPU time"
    verdict = {0: "survived", 1: "caught", 2: "caught"}.get(ran.returncode, f"pytest error {ran.returncode}")
    return verdict, seconds, " ".join(part for part in (moved, said) if part)


def main() -> int:
    """Run what was named, print a line for each and how many there were of each verdict."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="mutants to run; all without one")
    parser.add_argument("--unchanged", action="store_true", help="run their tests on the unchanged tree")
    chosen = parser.parse_args()
    known = {mutant.name: mutant for mutant in MUTANTS}
    if unknown := set(chosen.names) - set(known):
        parser.error(f"there is no mutant {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    mutants = [known[name] for name in chosen.names] or MUTANTS
    jobs = [(m.name, m.tests, m) for m in mutants]
    if chosen.unchanged:
        jobs = [(" ".join(tests), tests, None) for tests in dict.fromkeys(m.tests for m in mutants)]
    verdicts, total = [], 0.0
    for name, tests, mutant in jobs:
        verdict, seconds, said = run(tests, mutant)
        if mutant is None:
            verdict = {"survived": "passed", "caught": "FAILED"}.get(verdict, verdict)
        print(f"{name:42s} {verdict:14s} {seconds:6.1f} s  {said}".rstrip(), flush=True)
        verdicts.append(verdict)
        total += seconds
    counts = ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in sorted(set(verdicts)))
    print(f"{counts}; {total:.0f} s of CPU time")
    return 0 if set(verdicts) <= {"caught", "survived", "passed"} else 1


MUTANTS = [
    # optimization
    Mutant(
        "sharpness-takes-the-absolute-value",
        "optimization/gradient_descent.py",
        "torch.linalg.eigvalsh(tridiagonal)[-1]",
        "torch.linalg.eigvalsh(tridiagonal).abs().max()",
        ("tests/optimization/test_gradient_descent.py",),
    ),
    Mutant(
        "noise-floor-of-the-unbiased-variance",
        "optimization/stochastic_gradient_descent.py",
        "labels.var(correction=0)",
        "labels.var()",
        ("tests/optimization/test_stochastic_gradient_descent.py",),
    ),
    Mutant(
        "fourth-moment-loses-a-term",
        "optimization/ridge.py",
        '- 2 * torch.einsum("nij,nkl->niljk", outer, outer)',
        "",
        ("tests/optimization/test_ridge.py",),
    ),
    Mutant(
        "carrying-runs-weighted-by-the-factor",
        "optimization/multiplicative_noise.py",
        "mass * a.square()",
        "mass * a.abs()",
        ("tests/optimization/test_multiplicative_noise.py",),
    ),
    Mutant(
        "dual-norm-divides-by-the-width-ratio",
        "optimization/steepest_descent.py",
        "total * _width_ratio(gradient)",
        "total / _width_ratio(gradient)",
        ("tests/optimization/test_steepest_descent.py",),
    ),
    Mutant(
        "nesterov-weights-swapped",
        "optimization/muon.py",
        "torch_private.lerp_each([grads[i] for i in batch], moved, momentum)",
        "torch_private.lerp_each([grads[i] for i in batch], moved, 1 - momentum)",
        ("tests/optimization/test_muon.py",),
    ),
    Mutant(
        "safety-factor-not-cubed",
        "optimization/newton_schulz.py",
        "b / safety**3",
        "b / safety",
        ("tests/optimization/test_newton_schulz.py",),
    ),
    Mutant(
        "weight-decay-not-divided-by-the-rate",
        "optimization/mup.py",
        '"weight_decay": weight_decay / rate',
        '"weight_decay": weight_decay',
        ("tests/optimization/test_mup.py",),
    ),
    Mutant(
        "baseline-sees-its-own-sample",
        "optimization/gradient_estimators.py",
        "return (values.sum() - values) / (len(values) - 1)",
        "return values.sum().expand_as(values) / len(values)",
        ("tests/optimization/test_gradient_estimators.py",),
    ),
    # attention
    Mutant(
        "additive-mask-opens-the-future",
        "attention/scaled_dot_product.py",
        "attn_mask.masked_fill(~past, -math.inf)",
        "attn_mask",
        ("tests/attention/test_scaled_dot_product.py",),
    ),
    Mutant(
        "blind-query-averages-everything",
        "attention/scaled_dot_product.py",
        "torch.softmax(scores.masked_fill(blind, 0), -1).masked_fill(blind, 0)",
        "torch.softmax(scores.masked_fill(blind, 0), -1)",
        ("tests/attention/test_scaled_dot_product.py",),
    ),
    Mutant(
        "argmax-chooses-for-a-blind-query",
        "attention/scaled_dot_product.py",
        "weights = weights.masked_fill(_is_blind(scores), 0)",
        "weights = weights.masked_fill(scores.isnan(), 0)",
        ("tests/attention/test_scaled_dot_product.py",),
    ),
    Mutant(
        "causal-backward-leaves-out-the-diagonal",
        "attention/fused_quadratic.py",
        'keep = torch.tril if direction == "past" else torch.triu',
        'keep = torch.tril if direction == "past" else lambda scores: scores.triu(1)',
        ("tests/attention/test_kernelized.py",),
    ),
    Mutant(
        "denominator-counts-masked-keys",
        "attention/fused_quadratic.py",
        "y[..., at] * w[:, at].mT",
        "y[..., at]",
        ("tests/attention/test_kernelized.py",),
    ),
    Mutant(
        "fading-values-keep-their-weight",
        "attention/kernelized_chunks.py",
        "mask[:, -1, 1:, None] * values",
        "values",
        ("tests/attention/test_states.py",),
    ),
    Mutant(
        "running-maximum-without-rescaling",
        "attention/random_features.py",
        "sums = sums * (top - new_top).exp().mT",
        "sums = sums * 1",
        ("tests/attention/test_random_features.py",),
    ),
    Mutant(
        "rotations-keep-the-signs-of-qr",
        "attention/random_features.py",
        "rotations = rotations * triangles.diagonal(dim1=-2, dim2=-1).sign()[:, None, :]",
        "rotations = rotations * 1",
        ("tests/attention/test_random_features.py",),
    ),
    Mutant(
        "layouts-swapped",
        "attention/rotary.py",
        '(-1, 2) if source == "interleaved" else (2, -1)',
        '(2, -1) if source == "interleaved" else (-1, 2)',
        ("tests/attention/test_rotary.py",),
    ),
    Mutant(
        "angles-in-float32",
        "attention/rotary.py",
        "positions.double()[..., None] * frequencies.to(positions.device, torch.float64)",
        "positions.float()[..., None] * frequencies.to(positions.device, torch.float32)",
        ("tests/attention/test_rotary.py",),
    ),
    Mutant(
        "inverse-never-computed-anew",
        "attention/ridge.py",
        "for many in (1, 2)}",
        "for many in ()}",
        ("tests/attention/test_ridge.py",),
    ),
    # sae
    Mutant(
        "revived-at-full-size",
        "sae/sparse.py",
        "self.revived_size * encoder_norm * directions",
        "encoder_norm * directions",
        ("tests/sae/test_autoencoders.py", "tests/sae/test_train.py"),
    ),
    Mutant(
        "revived-keeps-its-second-moment",
        "sae/train.py",
        'for name in ("exp_avg", "exp_avg_sq"):',
        'for name in ("exp_avg",):',
        ("tests/sae/test_train.py",),
    ),
    Mutant(
        "resume-loses-the-generator",
        "sae/train.py",
        'self.generator.set_state(tensors["generator"])',
        'tensors["generator"]',
        ("tests/sae/test_checkpoints.py",),
    ),
    Mutant(
        "l1-kernel-forgets-the-norms-gradient",
        "sae/kernels.py",
        "grad_part += part * factor",
        "grad_part += 0 * factor",
        ("tests/sae/test_kernels.py",),
    ),
    Mutant(
        "nested-kernel-forgets-the-later-prefixes",
        "sae/kernels.py",
        "part.add_(after)",
        "part.add_(0 * after)",
        ("tests/sae/test_kernels.py",),
    ),
    Mutant(
        "gate-loss-trains-the-decoder",
        "sae/sparse/gated.py",
        "gate @ self.decoder_weight.detach()",
        "gate @ self.decoder_weight",
        ("tests/sae/test_kernels.py",),
    ),
    Mutant(
        "screening-never-doubts",
        "sae/screening.py",
        "SAFE * error > values.amin(dim=1).relu()",
        "SAFE * error > torch.inf",
        ("tests/sae/test_screening.py",),
    ),
    Mutant(
        "screening-forgets-the-bias",
        "sae/screening.py",
        "(step * LARGEST * extra))[:, None]",
        "(step * LARGEST * extra))[:, None] * 0",
        ("tests/sae/test_screening.py",),
    ),
    Mutant(
        "aux-of-all-features",
        "sae/sparse/topk.py",
        "torch.where(dead, pre, -torch.inf)",
        "pre",
        ("tests/sae/test_kernels.py",),
    ),
    Mutant(
        "jump-gradient-without-theta",
        "sae/sparse.py",
        "sum(dim=0, dtype=threshold.dtype) * threshold / ctx.bandwidth",
        "sum(dim=0, dtype=threshold.dtype) / ctx.bandwidth",
        ("tests/sae/test_autoencoders.py",),
    ),
    Mutant(
        "bias-clamped-as-misprinted",
        "sae/sparse.py",
        "raised = (bias + gamma * group_mean).clamp(max=0)",
        "raised = (bias + gamma * group_mean).clamp(min=0)",
        ("tests/sae/test_autoencoders.py",),
    ),
    Mutant(
        "batch-topk-takes-one-too-many",
        "sae/sparse/batch_topk.py",
        "(pre.detach(), self.k * len(pre))",
        "(pre.detach(), self.k * len(pre) + 1)",
        ("tests/sae/test_autoencoders.py",),
    ),
    Mutant(
        "merged-scatter-weighs-the-gap-wrongly",
        "representation/pca.py",
        "torch.outer(gap, gap) * (self.n_rows * n_rows / total)",
        "torch.outer(gap, gap) * (n_rows / total)",
        ("tests/representation/test_pca.py",),
    ),
    Mutant(
        "mmcs-over-the-other-axis",
        "sae/recovery.py",
        "table.max(dim=1).values.mean()",
        "table.max(dim=0).values.mean()",
        ("tests/sae/test_recovery.py",),
    ),
    Mutant(
        "threshold-between-equal-scores",
        "sae/concepts.py",
        "f1[:, :-1][falling[:, :-1] == falling[:, 1:]] = -1",
        "f1[:, :-1][falling[:, :-1] < falling[:, 1:]] = -1",
        ("tests/interpret/test_concepts.py",),
    ),
    # mbart
    Mutant(
        "layer-norm-epsilon-outside-the-root",
        "mbart/by_hand.py",
        "(variance + eps).sqrt()",
        "(variance.sqrt() + eps)",
        ("tests/mbart/test_by_hand.py",),
    ),
    Mutant(
        "heads-interleaved",
        "mbart/by_hand.py",
        "x.unflatten(-1, (n_heads, -1)).transpose(1, 2)",
        "x.unflatten(-1, (-1, n_heads)).movedim(-1, 1)",
        ("tests/mbart/test_by_hand.py",),
    ),
    Mutant(
        "means-start-one-token-late",
        "mbart/activations.py",
        "(counts.cumsum(0) - counts.long())[lengths.cumsum(0) - lengths]",
        "counts.cumsum(0)[lengths.cumsum(0) - lengths]",
        ("tests/mbart/test_activations.py",),
    ),
    Mutant(
        "masked-share-rounded-to-the-nearest",
        "mbart/noise.py",
        "int(mask_share * n_words + rng.random())",
        "int(mask_share * n_words + 0.5)",
        ("tests/language/test_noise.py",),
    ),
    Mutant(
        "steering-drops-what-is-not-reconstructed",
        "mbart/splicing.py",
        'if mode == "factor" else numbers found = x + (autoencoder.decode(changed) - autoencoder.decode(code))',
        'if mode == "factor" else numbers\n        found = autoencoder.decode(changed)',
        ("tests/mbart/test_splicing.py",),
    ),
    # pipeline
    Mutant(
        "equal-sentences-on-both-sides",
        "pipeline.py",
        "keys = [s.text if s.meaning is None else s.meaning for s in sentences]",
        "keys = list(range(len(sentences)))",
        ("tests/test_pipeline.py",),
    ),
    Mutant(
        "sparse-trains-on-held-out-tokens",
        "pipeline/autoencoders.py",
        "autoencoder, tokens.train, config.training, generator=generator(seed, 4)",
        "autoencoder, tokens.states, config.training, generator=generator(seed, 4)",
        ("tests/test_pipeline.py",),
    ),
    Mutant(
        "labels-out-of-step-with-their-rows",
        "pipeline.py",
        "labels[~rows.held_out] if supervised",
        'labels[: len(rows.sides["train"])] if supervised',
        ("tests/test_pipeline.py",),
    ),
    # teaching
    Mutant(
        "nan-counts-as-a-number",
        "teaching/exercise.py",
        "if not math.isfinite(as_float(value)):",
        "if math.isinf(as_float(value)):",
        ("tests/teaching/test_exercise.py",),
    ),
    Mutant(
        "judge-looks-at-the-first-property-only",
        "teaching/exercise.py",
        "for prop in self.properties:",
        "for prop in self.properties[:1]:",
        ("tests/teaching/test_exercise.py", "tests/lessons/test_exercises.py"),
    ),
    Mutant(
        "alike-mistakes-not-told-apart",
        "teaching/exercise.py",
        "ROUNDS_TO_TELL_APART = 25",
        "ROUNDS_TO_TELL_APART = 1",
        ("tests/teaching/test_exercise.py",),
    ),
    Mutant(
        "learner-gets-the-judges-own-inputs",
        "teaching/sandbox.py",
        "given = deepcopy(list(case.values()))",
        "given = list(case.values())",
        ("tests/teaching/test_sandbox.py", "tests/teaching/test_exercise.py"),
    ),
    Mutant(
        "frame-keeps-the-one-before",
        "teaching/explorer.py",
        "self._canvas.restore_region(self._background)",
        "self._canvas.get_renderer()",
        ("tests/teaching/test_explorer.py",),
    ),
    Mutant(
        "strip-shows-the-current-setting",
        "teaching/explorer.py",
        "{**self._defaults(), **given}",
        "{**self.settings, **given}",
        ("tests/teaching/test_explorer.py",),
    ),
    Mutant(
        "prediction-says-the-right-answers-sentence",
        "teaching/prediction.py",
        "{self.choices[guess]}",
        "{self.choices[self.answer]}",
        ("tests/teaching/test_prediction.py",),
    ),
    Mutant(
        "second-guess-replaces-the-first",
        "teaching/progress.py",
        'state["predictions"].setdefault(prediction_id, {"guess": guess, "right": right, **known})',
        'state["predictions"][prediction_id] = {"guess": guess, "right": right, **known}',
        ("tests/teaching/test_progress.py",),
    ),
    Mutant(
        "progress-written-in-place",
        "teaching/progress.py",
        "with replacing(self.path) as file:",
        'with self.path.open("wb") as file:',
        ("tests/teaching/test_progress.py",),
    ),
    Mutant(
        "claim-forgets-the-absolute-value",
        "teaching/claims.py",
        "gaps = np.abs(values - wanted)",
        "gaps = values - wanted",
        ("tests/teaching/test_claims.py",),
    ),
    # lessons
    Mutant(
        "lookup-13-starts-smaller-by-the-scale-itself",
        "lessons/attention_scaling/lookup.py",
        "return scale_of(ROOT_STD, std, d) ** 0.5",
        "return scale_of(ROOT_STD, std, d)",
        ("tests/lessons/test_attention_scaling.py",),
    ),
    Mutant(
        "exercise-01.3-accepts-one-step-more",
        "lessons/gradient_descent_stability/exercises.py",
        "** (float(answer) - 1) >= accuracy",
        "** max(float(answer) - 2, 0) >= accuracy",
        ("tests/lessons/test_exercises.py",),
    ),
    Mutant(
        "nan-is-no-code",
        "sae/sparse/crosscoder.py",
        "torch.where(largest_of_rows(weighted.detach(), self.k) == 0, 0, pre)",
        "torch.where(largest_of_rows(weighted.detach(), self.k) > 0, pre, 0)",
        ("tests/sae/test_autoencoders.py",),
    ),
    Mutant(
        "long-keys-underflow",
        "attention/ridge.py",
        "torch.exp2(exponent.to(factor.dtype))[:, None, None]",
        "torch.exp2(exponent.to(factor.dtype) * 0)[:, None, None]",
        ("tests/attention/test_ridge.py",),
    ),
    Mutant(
        "shard-read-unchecked",
        "mbart/activation_store.py",
        "self._raise_for([damage] if damage else [])",
        "self._raise_for([])",
        ("tests/mbart/test_activation_store.py",),
    ),
    Mutant(
        "states-whose-squares-overflow",
        "mbart/splicing.py",
        "squares = states.to(dtype).float().square().sum(dim=-1)",
        "squares = states.to(dtype).float().sum(dim=-1)",
        ("tests/mbart/test_splicing.py",),
    ),
]

if __name__ == "__main__":
    sys.exit(main())
