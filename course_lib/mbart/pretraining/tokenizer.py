"""The tokenizer of a pretrained model: SentencePiece unigram pieces that keep stem and ending apart.

Pieces found by frequency alone take "dog" and "dogs" as two words with nothing in common, and so does a
model that reads them. Where the forms of a word are known, its stem and its endings are the candidates;
unigram training gives them their probabilities and keeps as many as there is room for.
"""

import re
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from io import BytesIO
from itertools import takewhile
from pathlib import Path

import sentencepiece
from transformers import MBart50Tokenizer

from course_lib.language.corpus import Sentence

# Characters that the tokenizer knows even where the corpus has none of them: learners type their own.
_REQUIRED_CHARACTERS = "".join(map(chr, range(33, 127))) + "àâäáçéèêëíîïñóôöœúùûüßÀÂÄÁÇÉÈÊËÍÎÏÑÓÔÖŒÚÙÛÜ¿¡«»’"

_SHORTEST_STEM, _LONGEST_ENDING = 3, 3


def train_tokenizer(
    texts: Iterable[str], *, pieces: int, candidates: Mapping[str, int] | None = None
) -> MBart50Tokenizer:
    """SentencePiece unigram pieces in transformers' own MBart50Tokenizer, with mBART-50's language codes.

    Token ids: `<s> <pad> </s> <unk>`, the pieces, 52 language codes, `<mask>`. The text is normalised as
    SentencePiece does it by default (nmt_nfkc), like mBART's. `candidates` are the pieces to choose from,
    with their counts (`candidate_pieces`); single characters are added. Without them they are the frequent
    substrings of the text. Raises ValueError when there are fewer than `pieces`.
    """
    trained = BytesIO()
    with tempfile.TemporaryDirectory() as directory:
        given = {}
        if candidates is not None:
            file = Path(directory, "candidates.tsv")
            file.write_text("".join(f"{p}\t{n}\n" for p, n in candidates.items()), encoding="utf-8")
            given = {"seed_sentencepieces_file": str(file)}
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(texts),
                model_writer=trained,
                model_type="unigram",
                vocab_size=pieces,
                character_coverage=1.0,
                required_chars=_REQUIRED_CHARACTERS,
                num_threads=1,  # sums in one order: the same pieces every time
                minloglevel=2,
                **given,
            )
        except RuntimeError as error:
            raise ValueError(f"pieces is {pieces}, which this text does not yield: {error}") from error
        Path(directory, "sentencepiece.bpe.model").write_bytes(trained.getvalue())
        return MBart50Tokenizer.from_pretrained(directory)


def candidate_pieces(sentences: Sequence[Sentence]) -> dict[str, int]:
    """Stems, endings and undivided words of generated sentences, with their counts.

    The forms of a concept in one language are divided after the letters that all of them begin with, if
    these are at least 3 and leave endings of 3 letters or fewer: "Hund" and "en", but "mouse" and "mice"
    whole. What begins a word is marked with "▁"; a piece never mixes letters with other characters.
    """
    forms = defaultdict(set)
    for sentence in sentences:
        for start, end, concept in sentence.words:
            forms[sentence.language, concept].add(sentence.text[start:end].lower())
    stems = {key: _stem_length(words) for key, words in forms.items()}
    counts: Counter[str] = Counter()
    for sentence in sentences:
        cuts = {start + stems[sentence.language, concept] for start, _, concept in sentence.words}
        for word in re.finditer(r"\S+", sentence.text):
            for run in re.finditer(r"\w+|\W", word.group()):
                first, last = word.start() + run.start(), word.start() + run.end()
                inner = sorted(cut for cut in cuts if first < cut < last)
                for a, b in zip([first, *inner], [*inner, last], strict=True):
                    counts["▁" * (a == word.start()) + sentence.text[a:b]] += 1
    return dict(counts)


def _stem_length(forms: set[str]) -> int:
    """Letters that the forms share at their beginning; 0 where they are not divided."""
    shared = len(list(takewhile(lambda letters: len(set(letters)) == 1, zip(*forms, strict=False))))
    ending = max(map(len, forms)) - shared
    return shared if shared >= _SHORTEST_STEM and 0 < ending <= _LONGEST_ENDING else 0
