"""What counting allows on a GPU: the bounds and their crossings are those of the formulas."""

import pytest

from benchmarks import rooflines
from course_lib.attention.kernelized import crossover_length


def test_where_products_decide_the_crossing_is_that_of_the_count():
    form = rooflines.forms(64)["quadratic, C = 2,145"]
    for dtype in rooflines.TFLOPS:
        counted = crossover_length(64, 64, n_features=2145)
        assert rooflines.crossover(form, 64, dtype) == pytest.approx(counted)
        assert rooflines.crossover(form, 64, dtype, causal=True) == pytest.approx(2 * counted)
        assert rooflines.crossover(form, 64, dtype, training=True) == pytest.approx(counted)


def test_where_bytes_decide_it_is_where_softmax_attention_gets_as_many_products():
    form = rooflines.forms(16)["elu + 1, C = 16"]
    products, moved = rooflines.seconds_a_token(form, 16, "bfloat16")
    assert products == pytest.approx(2 * 2 * 16 * 17 / 989.5e12)
    assert moved == pytest.approx(4 * 16 * 2 / 4.8e12)
    assert rooflines.crossover(form, 16, "bfloat16") == pytest.approx(rooflines.softmax_balance("bfloat16"))
    assert rooflines.softmax_balance("bfloat16") * 4 * 16 / 989.5e12 == pytest.approx(moved)


def test_a_gradient_computes_all_products_but_the_last_again_and_follows_both_factors():
    for name, n in (("elu + 1, C = 64", 2), ("delta rule", 3), ("ridge", 5)):
        form = rooflines.forms(64)[name]
        forward, after = (
            rooflines.seconds_a_token(form, 64, "float32", training=training)[0] for training in (False, True)
        )
        assert after / forward == pytest.approx((n + n - 1 + 2 * n) / n)
    assert rooflines.forms(64)["ridge"].multiply_adds == 5 * 64**2


def test_a_row_for_each_head_and_form():
    assert len(rooflines.table().splitlines()) == 2 + len(rooflines.HEAD_DIMS) * len(rooflines.forms(64))
