"""What the theme leaves out for assistive technology is added once, and nothing else changes."""

import pytest

from course_lib.editions.html import name_landmarks


@pytest.mark.parametrize(
    ("made", "named"),
    [
        ('<aside class="toc-drawer">', '<aside class="toc-drawer" aria-label="On this page">'),
        ('<p class="caption" role="heading">I', '<p class="caption" role="heading" aria-level="2">I'),
        (
            '<tr><th class="head"><p></p></th>\n<th class="head"><p>3</p></th>',
            '<tr><td></td>\n<th class="head"><p>3</p></th>',
        ),
        ('<th scope="col" style="text-align:left"></th>', "<td></td>"),
        (
            '<dl>\n<dd><em class="sig-param">a</em>,</dd>\n<dd><em class="sig-param">b</em>,</dd>\n</dl><dl><dt>x</dt></dl>',
            '<ul class="course-parameters">\n<li><em class="sig-param">a</em>,</li>\n'
            '<li><em class="sig-param">b</em>,</li>\n</ul><dl><dt>x</dt></dl>',
        ),
        ("<thead><p>as it was</p></thead>", "<thead><p>as it was</p></thead>"),
    ],
)
def test_names_are_added_once(made, named):
    assert name_landmarks(made) == named
    assert name_landmarks(named) == named
