# ruff: noqa: E501  (template lines grow shorter when they are filled in)
"""The README that a pretrained model is written with: what made it, and what it was measured to do."""

import platform
from dataclasses import asdict
from itertools import permutations

import torch
import transformers
from jinja2 import Template

from course_lib import devices

_ROWS = {
    "denoising_loss": "denoising loss",
    "masked_word_accuracy": "masked words found",
    "translation_loss": "translation loss",
    "translation_exact_match": "translations equal to the right one",
    "retrieval_top1": "retrieval among all, mean of all pairs",
    "retrieval_top1_worst_pair": "retrieval among all, worst pair",
    "hard_retrieval_top1": "retrieval among neighbours, mean of all pairs",
    "hard_retrieval_top1_worst_pair": "retrieval among neighbours, worst pair",
}

_CARD = Template(
    """\
# {{ name }}

A small MBartForConditionalGeneration for learning and for tests. It knows the generated corpus of
`course_lib.language.corpus` and nothing else: on other text its states say little.

- Model: d_model {{ c.d_model }}, {{ c.layers }} + {{ c.layers }} layers, {{ c.heads }} heads, feed-forward {{ c.ffn_dim }},
  {{ c.max_positions }} positions, {{ "{:,}".format(parameters) }} parameters, embeddings scaled by sqrt(d_model);
  stored in half precision.
- Data: {{ "{:,}".format(c.n_meanings) }} training meanings drawn with seed {{ c.seed }}, each in {{ languages | join(", ") }}:
  families of four, one that is drawn and three that differ from it in a single concept.
- Tokenizer: SentencePiece unigram with {{ "{:,}".format(c.pieces) }} pieces, trained on the same text, in transformers'
  MBart50Tokenizer. Its candidates are the stems and endings of words with several forms, and other words
  undivided, so that "dog" and "dogs" share a piece.
- Objective: {{ c.denoising_steps }} steps of mBART's denoising: documents of 1 to {{ c.max_document }} sentences in random order,
  {{ "{:.0%}".format(c.mask_share) }} of the words masked in spans of Poisson({{ c.span_mean }}) words, one mask a span, language tokens on both
  sides. Then {{ "{:,}".format(c.translation_steps) }} steps of many-to-many translation as in mBART-50, {{ "{:.0%}".format(c.denoising_share) }} of them still denoising.
{%- if c.alignment_steps %}
  In the last {{ "{:,}".format(c.alignment_steps) }} of these a contrastive loss is added, as in mRASP2 (arXiv:2105.09501): the mean-pooled encoder
  states of a sentence and of its translation are to be nearest each other in the batch, whole families of
  meanings at a time, cosine / {{ c.alignment_temperature }}.
{%- else %}
  No loss asks that translations have like states.
{%- endif %}
- Training: {{ "{:,}".format(c.steps) }} steps of {{ c.batch_size }} sequences, AdamW, peak learning rate {{ c.step_size }}, {{ c.warmup_steps }} warm-up
  steps, linear decay, {{ c.precision }} products, seed {{ c.seed }}. It took {{ "%.0f" % scores.training_cpu_minutes }} minutes of CPU time on {{ machine }}
  (torch {{ torch }}, transformers {{ transformers }}). Training loss of the last 50 steps: {{ "%.3f" % scores.final_training_loss }}.
- Command: `{{ command }}`

Scores on {{ "{:,}".format(n_scored) }} held-out meanings (none occurs in the training text in any language):

| | this model | random weights |
|---|---|---|
{%- for name, label in rows.items() %}
| {{ label }} | {{ "%.3f" % scores[name] }} | {{ "%.3f" % scores["random_weights_" ~ name] }} |
{%- endfor %}

Losses are means a token in nats; that of translation counts the language code as well, which nothing tells
in advance (ln 3 a sentence). A masked word counts as found when all of its tokens are predicted
right, given the noised document and the true words before it; the corpus draws its words of content at
random, so that many a masked word can only be guessed. Translations are greedy, over random pairs of
languages; the corpus says a meaning in one way, so there is one right translation. Retrieval looks for the
translation of a sentence by cosine of mean-pooled encoder states (language code and end token left out):
among {{ "{:,}".format(n_scored) }} sentences drawn at random, and among neighbours, the sentences that differ from the right one in
a single concept ({{ "%.1f" % scores.hard_retrieval_candidates }} candidates in the mean, so that chance is {{ "{:.0%}".format(1 / scores.hard_retrieval_candidates) }}).
""",
    keep_trailing_newline=True,
)


def model_card(
    config,
    scores: dict[str, float],
    *,
    name: str,
    n_scored: int,
    parameters: int,
    languages: tuple[str, ...],
    device: torch.device,
) -> str:
    """The card of the model `name`, made on `device` with `config` (a PretrainConfig), with its `held_out_scores`."""
    arguments = _changed(config)
    return _CARD.render(
        c=config,
        name=name,
        scores=scores,
        n_scored=n_scored,
        rows=_ROWS,
        parameters=parameters,
        languages=languages,
        command=f"pretrain(PretrainConfig({arguments}), out)"
        if arguments
        else "python -m course_lib pretrain --out DIR",
        machine=_machine(device),
        torch=torch.__version__.split("+")[0],
        transformers=transformers.__version__,
    )


_TEXT_CARD = Template(
    """\
# {{ name }}

A small MBartForConditionalGeneration that has read real parallel text in {{ languages | join(", ") }}, and nothing else: on text
of another kind its states say little.{% if source %} {{ source }}{% endif %}

- Model: d_model {{ c.d_model }}, {{ c.layers }} + {{ c.layers }} layers, {{ c.heads }} heads, feed-forward {{ c.ffn_dim }},
  {{ c.max_positions }} positions, {{ "{:,}".format(parameters) }} parameters, embeddings scaled by sqrt(d_model);
  stored in half precision.
- Data: {{ "{:,}".format(rows) }} training paragraphs of at most {{ c.max_tokens }} tokens in each of the languages, of a table whose SHA-256 begins
  with {{ c.text[:16] }}.
- Tokenizer: SentencePiece unigram with {{ "{:,}".format(c.pieces) }} pieces, trained on the training paragraphs, in transformers'
  MBart50Tokenizer.
- Objective: {{ "{:,}".format(c.denoising_steps) }} steps of mBART's denoising: documents of 1 to {{ c.max_document }} paragraphs in random order,
  {{ "{:.0%}".format(c.mask_share) }} of the words masked in spans of Poisson({{ c.span_mean }}) words, one mask a span; {{ "{:,}".format(c.noised_documents) }} documents are noised
  once. Then {{ "{:,}".format(c.translation_steps) }} steps of many-to-many translation as in mBART-50, {{ "{:.0%}".format(c.denoising_share) }} of them still denoising.
{%- if c.alignment_steps %}
  In the last {{ "{:,}".format(c.alignment_steps) }} of these a contrastive loss is added, as in mRASP2 (arXiv:2105.09501): the mean-pooled encoder
  states of a paragraph and of its translation are to be nearest each other in the batch, cosine / {{ c.alignment_temperature }}.
{%- else %}
  No loss asks that translations have like states.
{%- endif %}
- Training: {{ "{:,}".format(c.steps) }} steps of up to {{ c.batch_size }} pairs, dropout {{ c.dropout }}, label smoothing {{ c.label_smoothing }}, AdamW, peak learning
  rate {{ c.step_size }}, {{ c.warmup_steps }} warm-up steps, linear decay, {{ c.precision }} products, seed {{ c.seed }}. It took {{ "%.1f" % scores.training_minutes }} minutes on {{ machine }}
  (torch {{ torch }}, transformers {{ transformers }}). Training loss of the last 50 steps, smoothing{% if c.alignment_steps %} and alignment{% endif %} included: {{ "%.3f" % scores.final_training_loss }}.
- Made by `pretrain_on_text(table, text_config(table, TextConfig({{ arguments }})), out)` of `course_lib.mbart.pretraining.text`,
  or `course pretrain --text TABLE --out DIR` with the same options.

Scores on {{ "{:,}".format(scores.rows | int) }} held-out paragraphs, means over all ordered pairs of languages:

| | this model | random weights | the source itself |
|---|---|---|---|
| loss of the translation, nats a token | {{ "%.3f" % scores.translation_loss }} | {{ "%.3f" % scores.random_weights_translation_loss }} | |
| chrF of the greedy translation | {{ "%.1f" % scores.chrf }} | {{ "%.1f" % scores.random_weights_chrf }} | {{ "%.1f" % scores.chrf_copied }} |
| retrieval of the translation among {{ "{:,}".format(scores.rows | int) }} | {{ "%.3f" % scores.retrieval }} | {{ "%.3f" % scores.random_weights_retrieval }} | |
| denoising loss, nats a token | {{ "%.3f" % scores.denoising_loss }} | {{ "%.3f" % scores.random_weights_denoising_loss }} | |
| masked words found | {{ "%.3f" % scores.masked_word_accuracy }} | {{ "%.3f" % scores.random_weights_masked_word_accuracy }} | |

The same in each pair, with the random weights' score in brackets:

| from, to | loss | chrF | chrF of the source | retrieval |
|---|---|---|---|---|
{%- for a, b in pairs %}
{%- set of = a[:2] ~ "_" ~ b[:2] %}
| {{ a[:2] }}, {{ b[:2] }} | {{ "%.3f" % scores["translation_loss_" ~ of] }} ({{ "%.3f" % scores["random_weights_translation_loss_" ~ of] }}) | {{ "%.1f" % scores["chrf_" ~ of] }} ({{ "%.1f" % scores["random_weights_chrf_" ~ of] }}) | {{ "%.1f" % scores["chrf_copied_" ~ of] }} | {{ "%.3f" % scores["retrieval_" ~ of] }} ({{ "%.3f" % scores["random_weights_retrieval_" ~ of] }}) |
{%- endfor %}

Losses are means a token in nats, without label smoothing. chrF is sacrebleu's, from 0 to 100, against the one translation that
the text has. Retrieval looks for the translation of a paragraph by cosine of mean-pooled encoder states (language code and end
token left out). A masked word counts as found when all of its tokens are predicted right, given the noised document and the
true words before it.
""",
    keep_trailing_newline=True,
)


def text_card(
    config,
    scores: dict[str, float],
    *,
    name: str,
    parameters: int,
    device: torch.device,
    source: str,
    rows: int,
) -> str:
    """The card of the model `name`, made with `config` (a TextConfig) of `rows`, with its `held_out_text_scores`."""
    filled = ("text", "languages", "n_meanings")
    return _TEXT_CARD.render(
        c=config,
        name=name,
        scores=scores,
        parameters=parameters,
        languages=config.languages,
        pairs=list(permutations(config.languages, 2)),
        source=source,
        rows=rows,
        arguments=_changed(config, but=filled),
        machine=_machine(device),
        torch=torch.__version__.split("+")[0],
        transformers=transformers.__version__,
    )


def _changed(config, *, but: tuple[str, ...] = ()) -> str:
    """The arguments that a configuration was made with and that are not the defaults."""
    defaults = type(config)()
    return ", ".join(
        f"{name}={value!r}"
        for name, value in asdict(config).items()
        if name not in but and value != getattr(defaults, name)
    )


def _machine(device: torch.device) -> str:
    return platform.machine() + ("" if device.type == "cpu" else f" beside {devices.describe(device)}")
