from course_lib.interpret.token_words import word_places

TEXT = 'Zellen (cell)  – "cafe\u0301".'


def words_of(spans):
    return [TEXT[slice(*place)] for place in word_places([TEXT], [0] * len(spans), spans)]


def test_pieces_have_their_word_and_signs_themselves_without_blanks():
    cut = [(0, 4), (4, 6), (6, 8), (8, 12), (12, 13), (13, 16), (16, 18), (18, 20), (20, 23), (23, 25)]
    assert words_of(cut) == ["Zellen", "Zellen", "(", "cell", ")", "–", '"', *2 * ["cafe\u0301"], '".']


def test_a_blank_has_what_it_begins():
    assert words_of([(0, 0), (6, 7), (7, 9), (13, 15), (25, 25)]) == ["Zellen", "(", "cell", "–", ""]


def test_a_token_of_several_words_has_the_first():
    assert words_of([(4, 12)]) == ["Zellen"]


def test_texts_follow_each_other():
    texts = ["one two", "", "three"]
    found = list(word_places(texts, [0, 0, 2, 2], [(0, 3), (3, 7), (0, 2), (2, 5)]))
    assert found == [(0, 3), (4, 7), (0, 5), (0, 5)]
