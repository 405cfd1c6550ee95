# ruff: noqa: E501  (template lines grow shorter when they are filled in)
"""The README that a pretrained model is written with: what made it, and what it was measured to do."""

import platform
from dataclasses import asdict

import torch
import transformers
from jinja2 import Template

_ROWS = {
    "denoising_loss": "denoising loss",
    "masked_word_accuracy": "masked words found",
    "translation_loss": "translation loss",
    "retrieval_top1": "translation retrieval, mean of all pairs",
    "retrieval_top1_worst_pair": "translation retrieval, worst pair",
}

_CARD = Template(
    """\
# course-mbart

A small MBartForConditionalGeneration for learning and for tests. It knows the generated corpus of
`course_lib.mbart.corpus` and nothing else: on other text its states say little.

- Model: d_model {{ c.d_model }}, {{ c.layers }} + {{ c.layers }} layers, {{ c.heads }} heads, feed-forward {{ c.ffn_dim }},
  {{ c.max_positions }} positions, {{ "{:,}".format(parameters) }} parameters, embeddings scaled by sqrt(d_model);
  stored in half precision.
- Data: {{ "{:,}".format(c.n_meanings) }} training meanings drawn with seed {{ c.seed }}, each in {{ languages | join(", ") }}.
- Tokenizer: SentencePiece unigram with {{ c.pieces }} pieces, trained on the same text, in transformers'
  MBart50Tokenizer.
- Objective: a step denoises with probability {{ 1 - c.translation_share }}: documents of 1 to {{ c.max_document }} sentences in
  random order, {{ "{:.0%}".format(c.mask_share) }} of the words masked in spans of Poisson({{ c.span_mean }}) words, one mask a span.
  Otherwise it translates sentences into another language.
- Training: {{ c.steps }} steps of {{ c.batch_size }} sequences, AdamW, peak learning rate {{ c.learning_rate }}, {{ c.warmup_steps }} warm-up
  steps, cosine decay, seed {{ c.seed }}. It took {{ "%.1f" % scores.training_minutes }} minutes with {{ threads }} threads on {{ machine }}
  (torch {{ torch }}, transformers {{ transformers }}). Training loss of the last 50 steps: {{ "%.3f" % scores.final_training_loss }}.
- Command: `{{ command }}`

Scores on {{ "{:,}".format(n_scored) }} held-out meanings (none occurs in the training text in any language):

| | this model | random weights |
|---|---|---|
{%- for name, label in rows.items() %}
| {{ label }} | {{ "%.3f" % scores[name] }} | {{ "%.3f" % scores["random_weights_" ~ name] }} |
{%- endfor %}

Losses are means a token in nats. A masked word counts as found when all of its tokens are predicted
right, given the noised document and the true words before it; the corpus draws its words of content at
random, so that many a masked word can only be guessed. Retrieval looks for the translation of a
sentence among as many, by cosine of mean-pooled encoder states (language code and end token left out).
Candidates drawn at random mostly differ in many words, which makes this an easy task: it does not say
how well sentences that differ in one concept are told apart.
""",
    keep_trailing_newline=True,
)


def model_card(
    config, scores: dict[str, float], *, n_scored: int, parameters: int, languages: tuple[str, ...]
) -> str:
    """The card of a model made with `config` (a PretrainConfig) and scored by `held_out_scores`."""
    defaults = type(config)()
    changed = {name: v for name, v in asdict(config).items() if v != getattr(defaults, name)}
    arguments = ", ".join(f"{name}={value!r}" for name, value in changed.items())
    return _CARD.render(
        c=config,
        scores=scores,
        n_scored=n_scored,
        rows=_ROWS,
        parameters=parameters,
        languages=languages,
        command=f"pretrain(PretrainConfig({arguments}), out)"
        if changed
        else "python -m course_lib pretrain --out DIR",
        threads=torch.get_num_threads(),
        machine=platform.machine(),
        torch=torch.__version__.split("+")[0],
        transformers=transformers.__version__,
    )
