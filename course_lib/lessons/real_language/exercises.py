"""Exercises of lesson 39, real_language."""

import torch

from course_lib.lessons.real_language.contents import lesson
from course_lib.teaching import edit, inputs, uniform, whole


@lesson.exercise(
    "39.1", "Labels that nobody wrote", difficulty=1, minutes=6,
    prompt="`english` holds the English version of each paragraph as numbers of words, shape `(rows, words)`. There are "
    "`len(row)` sentences, some of each language, and `row[i]` is the paragraph whose version sentence $i$ is. Write "
    "`labels(english, row, word)`: a number for each sentence, shape `(sentences,)`, 1 if the sentence holds the English "
    "`word` by the rule above and else 0 (float64: `.double()`). This becomes (39.1).",
    draw=inputs(
        rows=whole(3, 4), words=whole(2, 3), sentences=whole(5, 7), word=whole(0, 3),
        english=lambda generator, rows, words: torch.randint(0, 4, (rows, words), generator=generator),
        row=lambda generator, rows, sentences: torch.randint(0, rows, (sentences,), generator=generator),
    ),
    properties=[
        ("There should be one label for each sentence.", lambda row, answer: answer.shape == row.shape),
        ("Versions of one paragraph should have one label, whatever their language.",
         lambda row, answer: all(len(set(answer[row == r].tolist())) <= 1 for r in range(int(row.max()) + 1))),
        ("A sentence should be labelled where the English version of its paragraph has the word.",
         lambda english, row, word, answer: torch.equal(
             answer.double(), torch.stack([(english[r] == word).any() for r in row]).double())),
    ],
    hints=(
        "Which paragraphs have the word in English? That is one bool for each row of `english`.",
        "`(english == word).any(dim=1)` has shape (rows,). Each sentence needs the entry of its own paragraph.",
        "A table can be looked up with `row` as the index; `.double()` makes bools the numbers 1 and 0.",
    ),
    mistakes=[
        ("not looked up", edit("[row]", ""),
         "You have a label for each paragraph. Each sentence needs that of its own paragraph: look it up with `row`."),
        ("all words", edit(".any(", ".all("),
         "You ask whether every word of the English version is this one. One is enough."),
        ("counted", edit(".any(", ".sum("), "You counted how often the word occurs. A label is 1 or 0."),
        ("first word", edit("(english == word).any(dim=1)", "(english[:, 0] == word)"),
         "You looked at the first word of each English version only."),
        ("last word", edit("(english == word).any(dim=1)", "(english[:, -1] == word)"),
         "You looked at the last word of each English version only."),
        ("any paragraph", edit("(english == word).any(dim=1)[row]", "(english == word).any().expand(len(row))"),
         "You asked whether any paragraph has the word. Ask it row by row: `dim=1`."),
        ("without the word", edit("(english == word).any(dim=1)", "(english != word).all(dim=1)"),
         "You labelled the sentences whose paragraph does not have the word."),
        ("some other word", edit("english == word", "english != word"),
         "You asked whether the English version has some other word."),
        ("more than once", edit(".any(dim=1)", ".sum(dim=1).gt(1)"),
         "You asked for the word more than once. Once is enough."),
    ],
)
def labels(english, row, word):
    """Whether the English version of each sentence's paragraph has the word."""
    return (english == word).any(dim=1)[row].double()


lesson.value(
    "39.2", "How far above yes", difficulty=1, minutes=4,
    prompt="A word is in a quarter of the paragraphs. A feature detects it with F1 0.7. What is the F1 of a detector that "
    "answers yes to every paragraph, (39.2)? Call that detector 0 and one without error 1, on a straight scale of F1: "
    "where does the feature stand? Give three digits.",
    answer=0.5,
    properties=[
        ("The answer yes should stand at 0, F1 = 1 at 1, and the feature on the line between.",
         lambda answer: abs(0.4 + answer * 0.6 - 0.7) < 1e-3),
    ],
    hints=(
        "The answer yes to everything has a recall of 1. What is its precision?",
        "F1 = 2 x precision x recall / (precision + recall), with precision 1/4 and recall 1.",
        "Yes has 0.4. How much of the way from 0.4 to 1 does 0.7 go?",
    ),
    mistakes=[
        ("the F1 of yes", 0.4, "That is the F1 of yes. How much of the way from there to 1 does the feature go?"),
        ("the difference", 0.3, "That is the difference of the two. Divide by what there was to gain, 1 - 0.4."),
        ("from the share", 0.6, "You started at the share, 0.25. The F1 of yes is larger: its recall is 1."),
        ("the F1 itself", 0.7, "That is the feature's F1. On the new scale yes to everything stands at 0."),
        ("ratio", 0.7 / 0.4, "You divided the two F1. Asked is the place between 0.4 and 1."),
        ("ratio upside down", 0.4 / 0.7, "You divided the F1 of yes by the feature's."),
        ("mean for F1", (0.7 - 0.625) / (1 - 0.625),
         "You took the mean of precision and recall, 0.625. F1 is their harmonic mean."),
    ],
)


@lesson.exercise(
    "39.3", "What may be judged?", difficulty=2, minutes=9,
    prompt="Paragraph $r$ stands on page `page[r]`; `texts`, shape `(rows, languages)`, numbers its versions, and equal "
    "numbers are equal texts. `held`, a bool for each page, says which pages are held out. Write "
    "`judged(page, texts, held)`, shape `(rows,)`: 1 for each paragraph that may be judged, else 0 (float64). It stands "
    "on a held-out page, and *none* of its versions is, in its own language, a text of a paragraph on a training page.",
    draw=inputs(
        rows=whole(6, 8), languages=whole(2, 3), pages=whole(3, 4),
        page=lambda generator, rows, pages: torch.randint(0, pages, (rows,), generator=generator),
        chance=uniform(0, 1, "pages"), held=lambda chance: chance > 0.5,
        texts=lambda generator, rows, languages: torch.randint(
            0, 7, (rows, languages), generator=generator) + 10 * torch.arange(languages),
    ),
    properties=[
        ("Only paragraphs on held-out pages should be judged.",
         lambda page, held, answer: not bool((answer != 0)[~held[page]].any())),
        ("No version of a judged paragraph should be a text of a training paragraph.",
         lambda page, texts, held, answer: not any(
             torch.isin(texts[answer != 0, i], texts[~held[page], i]).any() for i in range(texts.shape[1]))),
        ("A paragraph on a held-out page that shares no text with a training paragraph should be judged.",
         lambda page, texts, held, answer: bool((answer == 1)[held[page] & ~torch.stack(
             [torch.isin(texts[:, i], texts[~held[page], i]) for i in range(texts.shape[1])]).any(dim=0)].all())),
    ],
    hints=(
        "Which paragraphs are held out? `held[page]` has one entry a paragraph; the others are the training paragraphs.",
        "`torch.isin(texts[:, 0], texts[~out, 0])` says whose first version stands in the training paragraphs, too.",
        "One leaking version is enough to leave the paragraph out: go through the languages and collect with `|`.",
    ),
    mistakes=[
        ("pages only", edit(" & ~seen", ""),
         "You held out pages, but a held-out paragraph may repeat, word for word, one of another page."),
        ("first language", edit("range(texts.shape[1])", "range(1)"),
         "You compared one language. The leak may be in any version."),
        ("all versions", edit("seen | ", "seen & ", "torch.zeros_like(out)", "torch.ones_like(out)"),
         "You left a paragraph out only if all its versions are in training. One is enough: the detector is judged on "
         "each version."),
        ("against itself", edit("texts[~out, i]", "texts[:, i]"),
         "You compared each paragraph with all of them, itself included, so that nothing is left."),
        ("training pages", edit("(out & ~seen)", "(~out)"), "You returned the paragraphs of the training pages."),
        ("the leaks", edit("& ~seen", "& seen"), "You kept the leaks and dropped the rest."),
        ("held for page", edit("held[page]", "held[page.clamp(max=0)]"), "You looked up the same page for every paragraph."),
    ],
)
def judged(page, texts, held):
    """Paragraphs on held-out pages without a text that a training paragraph has."""
    out = held[page]
    seen = torch.zeros_like(out)
    for i in range(texts.shape[1]):
        seen = seen | torch.isin(texts[:, i], texts[~out, i])
    return (out & ~seen).double()


@lesson.exercise(
    "39.4", "As good as the words allow", difficulty=2, minutes=8,
    prompt="`f1` holds the F1 of each word's feature in the other languages, shape `(words, languages)`, `ceiling` that of "
    "the probe of the words there, and `alike`, shape `(words,)`, says which words some language spells like English. "
    "Write `share(f1, ceiling, alike)`: of the words that are *not* alike, the share (a float) whose feature has at least "
    "0.9 of the ceiling in *every* language. This becomes (39.3).",
    draw=inputs(
        words=whole(6, 8), languages=whole(2, 3), ceiling=uniform(0.5, 1, "words languages"),
        part=uniform(0.8, 1.1, "words languages"), f1=lambda part, ceiling: part * ceiling,
        chance=uniform(0, 1, "words"), alike=lambda chance: chance > chance.median(),
    ),
    properties=[
        ("The share should be of the words that are not alike.",
         lambda alike, answer: abs(float(answer) * int((~alike).sum()) - round(float(answer) * int((~alike).sum()))) < 1e-6),
        ("A word should count if its feature has 0.9 of the ceiling in every language.",
         lambda f1, ceiling, alike, answer: abs(
             answer - float((f1 >= 0.9 * ceiling).all(dim=1)[~alike].double().mean())) < 1e-6),
    ],
    hints=(
        "Compare the two tables entry by entry: `f1 >= 0.9 * ceiling`.",
        "A word needs all its languages: `.all(dim=1)`.",
        "Keep the words with `~alike`, then take the mean of the bools as numbers: `.double().mean()`.",
    ),
    mistakes=[
        ("any language", edit(".all(dim=1)", ".any(dim=1)"),
         "You counted a word that reaches it in one language. Asked is every one."),
        ("each entry", edit(".all(dim=1)[~alike]", "[~alike]"),
         "You counted entries, a word in a language each. A word counts only if all its languages do."),
        ("alike too", edit("[~alike]", ""), "You counted the words that are spelled alike, too."),
        ("only alike", edit("[~alike]", "[alike]"), "You took the words that are spelled alike, and left out the others."),
        ("absolute", edit("0.9 * ceiling", "0.9"), "You asked for an F1 of 0.9. The bar is 0.9 of the ceiling."),
        ("the ceiling itself", edit("0.9 * ceiling", "ceiling"), "You asked for the whole ceiling."),
        ("minus a tenth", edit("0.9 * ceiling", "ceiling - 0.1"),
         "You went 0.1 below the ceiling. The bar is 0.9 times the ceiling."),
        ("of all words", edit(".double().mean()", ".double().sum() / len(f1)"),
         "You divided by the number of all words. The share is of those that are not alike."),
        ("a count", edit(".double().mean()", ".double().sum()"), "You counted the words. Asked is their share."),
        ("mean over languages", edit("(f1 >= 0.9 * ceiling).all(dim=1)", "(f1.mean(dim=1) >= 0.9 * ceiling.mean(dim=1))"),
         "You compared means over the languages: a good language makes up for a bad one there."),
        ("in percent", edit("float(", "100 * float("), "Right, in percent: give a share, between 0 and 1."),
        ("below", edit(">=", "<"), "You counted the words that stay below the bar."),
    ],
)
def share(f1, ceiling, alike):
    """The share of words, not spelled alike, whose feature has 0.9 of the ceiling in every language."""
    return float((f1 >= 0.9 * ceiling).all(dim=1)[~alike].double().mean())


EXERCISES = lesson.exercises
