"""Features at words, by hand, and tokens numbered by the word that they belong to."""

import torch

from course_lib.interpret.interventions import find_word_tokens
from course_lib.interpret.word_table import WordTable, number_concepts
from course_lib.language.word_cases import draw_cases
from course_lib.mbart.activations import Site, extract
from course_lib.mbart.model import load


def test_word_table_by_hand():
    states = torch.arange(8.0).view(4, 2)
    code = torch.tensor([[1.0, 0, 0], [3.0, 0, 2], [0, 5.0, 4], [0, 0, 6.0]])
    table = WordTable.of(states, code.to_sparse_coo(), torch.tensor([0, 0, 1, -1]), 3)
    assert table.n_tokens.tolist() == [2, 1, 0]
    assert table.recall.tolist() == [[1, 0, 0.5], [0, 1, 1], [0, 0, 0]]
    torch.testing.assert_close(table.precision, torch.tensor([[1, 0, 1 / 3], [0, 1, 1 / 3], [0, 0, 0]]))
    assert table.activation.tolist() == [[2, 0, 1], [0, 5, 4], [0, 0, 0]]
    assert table.state.tolist() == [[1, 2], [4, 5], [0, 0]]
    found = table.features(torch.tensor([0, 2, 1]), precision=0.5)
    assert found.tolist() == [[True, False, False], [False, True, True], [False, True, False]]
    assert table.features(torch.tensor([0, 2, 1]), precision=0.3)[0].tolist() == [True, False, True]


def test_its_tensors_do_not_follow_the_default_dtype(double_by_default):
    states, code = torch.ones(2, 2, dtype=torch.float32), torch.eye(2, dtype=torch.float32)
    table = WordTable.of(states, code.to_sparse_coo(), torch.tensor([0, 0]), 1)
    assert table.state.dtype == torch.float32
    assert table.state.tolist() == [[1, 1]]


def test_words_are_numbered_at_the_rows_of_extract():
    model, tokenizer = load()
    cases = draw_cases(["animal:dog", "verb:eat", "place:school", "determiner:my"], 12, seed=0, pool=1000)
    read = [c.sentence for c in cases]
    states = extract(model, tokenizer, read, [Site("encoder")], progress=False)[Site("encoder")]
    concepts = sorted({c.concept for c in cases})
    found = number_concepts(tokenizer, read, concepts)
    own = find_word_tokens(tokenizer, cases)[states.sentence, states.position]
    expected = torch.tensor([concepts.index(cases[i].concept) for i in states.sentence.tolist()])
    assert len(found) == len(states.values)
    assert torch.equal(found[own], expected[own])
