"""Concepts of real parallel text: the frequent words of one language, asked of the sentences of all.

Text that nobody made from concepts says nothing of them, but its translations do. A row of a table of parallel text is one
meaning, said in each language; a word that the row has in the pivot language is taken for a concept of the row, and so of
its sentence in every language. A feature that fires at "cell" and at "Zelle" detects it, one that knows a spelling
does not. Translations are free, though: no sentence has to say what a word of another one says. How far the words of a
language tell which word the pivot has is measured by a linear probe of these words, the ceiling (`word_ceiling`).

A table may also say something about its rows in a column of labels, such as their topic. Its values are then concepts of
the rows, too (`find_labels`), and scored in the same way; for these a table of one language is enough.
"""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from course_lib.interpret.concepts import best_thresholds, f1_scores

MIN_ROWS = 10  # rows of the table that have a word, in training and held out, without which it is no concept
MIN_SENTENCES = 30  # held-out sentences with it, as for all concepts of a report
MAX_SHARE = 0.2  # of the training rows; always yes has an F1 of 0.33 there
MAX_WORDS = 400  # the most frequent ones in training
ALIKE_FROM = 0.1  # share of a word's training rows with the same word in another language's column
CEILING_REACHED = 0.9  # part of the ceiling's F1 from which a feature counts as good as the words
TRANSLATED, ALIKE = "translated", "spelled alike"

_WORD = re.compile(r"[^\W\d_]+")
_LETTERS = 3  # the shortest word that is a concept
_VOCABULARY = 2000  # words of a language that the ceiling reads, the most frequent ones
_RIDGES = (0.1, 1.0, 10.0, 100.0, 1000.0)

# Words of grammar, which a translation need not keep, of three letters or more.
_GRAMMAR = {
    "en": "about above after again all also although always and another any anything are around because been before being "
    "below between both but can cannot could did does doing done down during each either else even ever every few for "
    "from had has have having her here hers him his how however into its itself just less let like many may might "
    "mine more most much must neither never nor not nothing now off often once only onto other otherwise our out over "
    "own per rather same shall she should since some something still such than that the their them then there "
    "therefore these they this those though through thus together too toward towards under unless until upon very via "
    "was were what when whenever where whether which while who whole whom whose why will with within without would "
    "yet you your yours yourself",
    "de": "aber alle allem allen aller alles als also andere anderem anderen anderer anderes auch auf aus außer bei beide "
    "beiden beim bereits bin bis bzw dabei dadurch daher damit danach dann daran darauf daraus darf darin das dass "
    "davon dazu dein dem den denen denn der deren des dessen die dies diese diesem diesen dieser dieses doch dort "
    "durch dürfen eine einem einen einer eines einige einigen einiger etwa etwas euch falls für gegen haben hat hatte "
    "hier hinter ich ihm ihn ihnen ihr ihre ihrem ihren ihrer immer indem ins ist jede jedem jeden jeder jedes jedoch "
    "kann kein keine keinem keinen keiner können konnte man manche mehr mein mit muss müssen nach neben nicht nichts "
    "noch nun nur oben ober oder ohne sehr sein seine seinem seinen seiner seit sich sie sind sobald sodass solange "
    "soll sollen sollte sondern sonst sowie sowohl über und uns unser unter viel viele vielen vom von vor war waren "
    "was wegen weil welche welchem welchen welcher welches wenn wer werden weder wie wieder wir wird wobei wodurch "
    "worden wurde wurden während zum zur zwar zwischen",
    "es": "además ahí algo algún alguna algunas alguno algunos allí ambas ambos ante antes aquel aquella aquellas aquellos "
    "aquí así aún aunque bajo bien cada casi como con contra cual cuál cuales cualquier cuando cuándo cuya cuyo dado "
    "debe deben del desde después donde dónde dos durante ella ellas ello ellos entonces entre era eran esa esas ese "
    "eso esos está esta están estas este esto estos fue fueron haber había hace hacia han hasta hay las les los luego "
    "más menos mediante mientras misma mismas mismo mismos mucho muchos muy nada nos nosotros nunca otra otras otro "
    "otros para pero poco por porque puede pueden pues qué que quien ser según será serán sido siempre sin sino sobre "
    "son sólo solo sus también tampoco tan tanto tener tiene tienen toda todas todavía todo todos tras tus una unas "
    "uno unos usted ustedes vez",
    "fr": "afin ailleurs ainsi alors après assez aucun aucune aura auront aussi autre autres aux auquel avant avec avez "
    "avoir beaucoup bien car cela celle celles celui cependant ces cet cette ceux chaque chez chacun chacune comme "
    "comment contre dans deçà depuis derrière dès des desquelles desquels deux devant deux donc dont doit doivent "
    "duquel elle elles encore entre est êtes été être eux fait faut hors ici ils jamais jusqu jusque laquelle lequel "
    "les lesquelles lesquels leur leurs lors lorsqu lorsque lui mais malgré même mêmes mes mieux moins mon nos "
    "notamment notre nous ont par parce parfois pas pendant peu peut peuvent plus plusieurs pour pourquoi puis "
    "puisque quand que quel quelle quelles quelque quelques quels qui quoi sans sauf selon sera seront ses seul seule "
    "sinon soit son sont sous sur tandis tant tel telle telles tels tous tout toute toutes très trop une uns vers "
    "voici voilà vos votre vous",
}
_GRAMMAR_WORDS = {code: frozenset(words.split()) for code, words in _GRAMMAR.items()}


class NoWordsError(ValueError):
    """No word of the pivot language is in enough rows to be a concept."""


class LabelsError(ValueError):
    """A column of labels that gives no concept."""


@dataclass(frozen=True)
class TranslatedWord:
    """A word of the pivot language as a concept, `en:cell`: the rows that have it, and the languages that spell it alike.

    `alike` are the other languages whose column has the same word in at least `ALIKE_FROM` of its training rows. Of a
    value of a column of labels, `topic:sport`, `column` is the name of the column.
    """

    concept: str
    rows_train: int
    rows_held_out: int
    alike: list[str]
    column: str | None = None

    @property
    def word(self) -> str:
        """The word itself, in lower case."""
        return self.concept.partition(":")[2]

    @property
    def category(self) -> str:
        """Whether some other language spells it alike; of a label its column."""
        return self.column or (ALIKE if self.alike else TRANSLATED)


@dataclass(frozen=True)
class TranslatedWords:
    """The concepts of a table, and how well the words of each language tell them.

    `languages` are the columns of text and begin with the pivot, which is None where no words are concepts. `ceiling` has
    for each language the held-out F1 of the probe of its words, in the order of `words` (`word_ceiling`).
    `words_left_out` counts words with enough rows beyond the most frequent `MAX_WORDS`. `labels` are the columns whose
    values are concepts: they stand behind the words in `words`.
    """

    pivot: str | None
    languages: list[str]
    words: list[TranslatedWord]
    ceiling: dict[str, list[float]]
    words_left_out: int = 0
    labels: list[str] = field(default_factory=list)


def short_code(code: str) -> str:
    """The part of a language's code that names the language: "en" of "en_XX", "eng" of "eng_Latn"."""
    return code.partition("_")[0]


def knows_grammar(language: str) -> bool:
    """Whether words of grammar of a language are known, and so left out of its concepts."""
    return short_code(language) in _GRAMMAR_WORDS


def words_of(text: str) -> frozenset[str]:
    """The different words of a text, in lower case: runs of letters."""
    return frozenset(_WORD.findall(text.lower()))


def find_words(
    texts: Mapping[str, Sequence[str]], held_out: Sequence[bool], *, pivot: str
) -> tuple[list[TranslatedWord], int]:
    """The words of the pivot language that are concepts, the most frequent in training first, and how many were left out.

    `texts` has a column of texts for each language, row by row, and `held_out` says which rows are not trained on. A
    word has three letters or more and is none of grammar (for en, de, fr and es). It is in at least `MIN_ROWS` rows of
    each side, in `MIN_SENTENCES` held-out sentences of all languages together, and in at most `MAX_SHARE` of the
    training rows, so that always yes is no good detector.

    Raises ValueError for a pivot that has no column, and NoWordsError where no word is left.
    """
    if pivot not in texts:
        raise ValueError(f"pivot is {pivot!r}; expected one of {', '.join(texts)}")
    found = {language: [words_of(text) for text in column] for language, column in texts.items()}
    grammar = _GRAMMAR_WORDS.get(short_code(pivot), frozenset())
    counts = [
        Counter(
            word for words, out in zip(found[pivot], held_out, strict=True) if out == side for word in words
        )
        for side in (False, True)
    ]
    n_train = len(held_out) - sum(held_out)
    least = _least_held_out(len(texts))
    frequent = [
        word
        for word, count in counts[0].most_common()
        if MIN_ROWS <= count <= MAX_SHARE * n_train
        and counts[1][word] >= least
        and len(word) >= _LETTERS
        and word not in grammar
    ]
    if not frequent:
        raise NoWordsError(
            f"no word of {pivot} is in {MIN_ROWS} training rows, {least} held-out ones and at most {MAX_SHARE:.0%} of "
            f"{n_train} training rows ({len(held_out) - n_train} rows are held out); give more rows or another pivot"
        )
    frequent.sort(key=lambda word: (-counts[0][word], word))
    kept = frequent[:MAX_WORDS]
    shared: dict[str, Counter[str]] = {}
    for language in texts:
        if language != pivot:
            shared[language] = Counter(
                word
                for own, other, out in zip(found[pivot], found[language], held_out, strict=True)
                if not out
                for word in own & other
            )
    words = [
        TranslatedWord(
            f"{short_code(pivot)}:{word}",
            counts[0][word],
            counts[1][word],
            [language for language, both in shared.items() if both[word] >= ALIKE_FROM * counts[0][word]],
        )
        for word in kept
    ]
    return words, len(frequent) - len(kept)


def _least_held_out(n_languages: int) -> int:
    """Held-out rows that a concept needs, where each is so many sentences."""
    return max(MIN_ROWS, -(-MIN_SENTENCES // n_languages))


def find_labels(
    columns: Mapping[str, Sequence[str]], held_out: Sequence[bool], *, n_languages: int
) -> list[TranslatedWord]:
    """The values of columns of labels that are concepts, column by column, the most frequent in training first.

    `columns` has the value of each row by name of the column; a row with an empty one holds none of its concepts.
    `held_out` says which rows are not trained on, and each row is `n_languages` sentences. A value is in at least
    `MIN_ROWS` rows of each side and `MIN_SENTENCES` held-out sentences, and not in all rows of a side, where there would
    be nothing to tell.

    Raises LabelsError for a column whose rows are all alike, one without a value in enough rows, one with more than
    `MAX_WORDS` such values, and one whose name the report has for itself.
    """
    least, n_out = _least_held_out(n_languages), sum(held_out)
    found = []
    for column, values in columns.items():
        if column in ("all", TRANSLATED, ALIKE):
            raise LabelsError(f"labels names the column {column!r}, a name of the report's own; rename it")
        if len(set(values)) < 2:
            raise LabelsError(
                f"labels names the column {column!r}, which has {values[0]!r} in all {len(values)} rows; expected two "
                "values or more"
            )
        train, out = (
            Counter(value for value, there in zip(values, held_out, strict=True) if value and there == side)
            for side in (False, True)
        )
        frequent = [
            TranslatedWord(f"{column}:{value}", count, out[value], [], column)
            for value, count in sorted(train.items(), key=lambda item: (-item[1], item[0]))
            if MIN_ROWS <= count < len(values) - n_out and least <= out[value] < n_out
        ]
        if not frequent:
            rows = math.ceil(least * len(values) / max(n_out, 1))
            raise LabelsError(
                f"labels names the column {column!r}, of whose {len(set(values))} values none can be named: of "
                f"{len(values)} rows {n_out} are held out, and a value must be in {least} of these and in {MIN_ROWS} of the "
                f"others, and not in all; expected about {rows:,} rows with a value, or more"
            )
        if len(frequent) > MAX_WORDS:
            raise LabelsError(
                f"labels names the column {column!r}, which has {len(frequent)} values that are frequent enough; expected "
                f"{MAX_WORDS} at most"
            )
        found += frequent
    return found


def held_labels(
    labels: Sequence[TranslatedWord], columns: Mapping[str, Sequence[str]]
) -> list[frozenset[str]]:
    """The concepts of each row among `labels`, from its values in the columns."""
    known = {label.concept for label in labels}
    named = [[f"{column}:{value}" for value in values] for column, values in columns.items()]
    return [frozenset(row) & known for row in zip(*named, strict=True)]


def held_words(words: Sequence[TranslatedWord], texts: Sequence[str]) -> list[frozenset[str]]:
    """The concepts of each row, from its text in the pivot language."""
    concepts = {word.word: word.concept for word in words}
    return [frozenset(concepts[word] for word in words_of(text) if word in concepts) for text in texts]


def word_ceiling(
    texts: Sequence[str], labels: Bool[Tensor, "rows concepts"], held_out: Bool[Tensor, " rows"]
) -> Float[Tensor, " concepts"]:
    """Held-out F1 of a linear probe of a language's words: how well its text tells the words of the pivot.

    A row is the bag of its words, x_j = 1 for each of the 2,000 words in most training rows that it has. The probe of a
    concept is ridge regression on its label; ridge and threshold have the best F1 of training rows that were left out,

        y_i without i = (y'_i - h_ii y_i) / (1 - h_ii),    H = X (X^T X + ridge I)^-1 X^T + 1/n,

    with X centred and y' = H y: what the fit without row i says of it. For the pivot itself it is near 1, as the word
    stands there. Raises ValueError where the numbers of rows differ or a side has none.
    """
    if not len(texts) == len(labels) == len(held_out):
        raise ValueError(
            f"texts has {len(texts)} rows, labels {len(labels)}, held_out {len(held_out)}; expected as many"
        )
    if held_out.all() or not held_out.any():
        raise ValueError("held_out is the same for all rows; expected rows to train on and others")
    bags = [words_of(text) for text in texts]
    counts = Counter(
        word for bag, out in zip(bags, held_out.tolist(), strict=True) if not out for word in bag
    )
    place = {word: i for i, (word, _) in enumerate(counts.most_common(_VOCABULARY))}
    x = torch.zeros(len(bags), len(place), dtype=torch.float64)
    for row, bag in enumerate(bags):
        x[row, [place[word] for word in bag if word in place]] = 1
    x -= x[~held_out].mean(dim=0)
    train, truth = x[~held_out], labels[~held_out]
    y = truth.double()
    mean = y.mean(dim=0)
    values, vectors = torch.linalg.eigh(train.T @ train)
    rotated, scores = train @ vectors, x[held_out] @ vectors
    moments = rotated.T @ (y - mean)
    best = torch.full((labels.shape[1],), -1.0, dtype=torch.float64)
    f1 = torch.zeros_like(best)
    for ridge in _RIDGES:
        shrunk = 1 / (values.clamp(min=0) + ridge)
        weights = shrunk[:, None] * moments
        own = (rotated.square() @ shrunk + 1 / len(train))[:, None]
        left_out = (rotated @ weights + mean - own * y) / (1 - own).clamp(min=1e-6)
        threshold = best_thresholds(left_out, truth)
        there = f1_scores(left_out > threshold, truth)
        called = scores @ weights + mean > threshold
        f1 = torch.where(there > best, f1_scores(called, labels[held_out]), f1)
        best = torch.maximum(there, best)
    return f1
