"""The feature browser in Chromium: by keyboard, by name, by link, with hostile text, served and as a file."""

import dataclasses
import json
import re

import nbformat
import pytest

from course_lib.interpret.browser.page import export
from course_lib.interpret.browser.server import Server, serve
from tests.browser.learner import STUCK, close, errors, open_notebook, run_all
from tests.interpret.browser.runs import HOSTILE, make_run, some_concepts
from tests.tiny_mbart import write_tiny_mbart

pytestmark = pytest.mark.xdist_group("browse")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    root = tmp_path_factory.mktemp("browse")
    write_tiny_mbart(root / "model")
    return make_run(root / "run", root / "model", concepts=some_concepts())


@pytest.fixture(scope="module")
def server(run):
    started = serve(run, effects=3, threads=1, progress=False)
    yield started
    started.close()


@pytest.fixture
def page(browser):
    """A page of its own, whose script errors and requests to other hosts fail the test."""
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    context.set_default_timeout(1000 * STUCK)
    opened, faults = context.new_page(), []
    opened.on("pageerror", lambda error: faults.append(str(error)))
    opened.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
    opened.on(
        "request",
        lambda request: (
            re.match(r"(http://127\.0\.0\.1:|file:|data:|about:)", request.url) or faults.append(request.url)
        ),
    )
    yield opened
    context.close()
    # What the server refuses with an explanation is no fault of the page.
    assert [fault for fault in faults if "400 (Bad Request)" not in fault] == []


def status(page, words):
    page.wait_for_function(
        "words => document.getElementById('status').textContent.includes(words)", arg=words
    )


def test_the_page_works_inside_a_notebook(desk, lab, run):
    cell = (
        f"from course_lib.interpret.browser import browse\n\nbrowse({str(run)!r}, effects=3, progress=False)"
    )
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell)])
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(notebook, lab.root / "notebooks" / "browse.ipynb")
    open_notebook(desk, "browse.ipynb")
    run_all(desk)
    inside = desk.frame_locator("iframe[title='Feature browser']")
    inside.get_by_role("searchbox", name="Search word, concept or number").fill("hammer")
    inside.locator("#status", has_text="1 feature of 96").wait_for()
    inside.get_by_role("link", name=re.compile(r"^Feature 3:")).click()
    inside.get_by_role("heading", name="Feature 3").wait_for()
    assert errors(desk) == []
    close(desk)


def test_search_sort_and_open_by_keyboard(page, server):
    page.goto(server.address)
    status(page, "96 features")
    search = page.get_by_role("searchbox", name="Search word, concept or number")
    search.focus()
    page.keyboard.type("hammer")
    status(page, "1 feature of 96")
    assert page.evaluate("document.activeElement.id") == "q"  # typing goes on while the list is drawn anew
    assert page.get_by_role("row").count() == 2
    page.get_by_role("combobox", name="Sort by").select_option("density")
    link = page.get_by_role("link", name=re.compile(r"^Feature 3:"))
    link.focus()
    page.keyboard.press("Enter")
    status(page, "Feature 3, <b>tool:nail</b>")
    assert page.evaluate("document.activeElement.id") == "feature-title"
    assert page.get_by_role("heading", name="Feature 3").is_visible()
    assert page.get_by_role("img", name=re.compile("Histogram of activations")).is_visible()
    assert page.get_by_role("cell", name="<b>tool:nail</b>", exact=True).count() == 1
    (named,) = page.locator(".list td.name").all_inner_texts()
    assert named.startswith("<b>tool:nail</b>")
    page.go_back()
    status(page, "1 feature of 96")
    search.fill("nothing like it")
    status(page, "No feature has that number")


def test_sorted_by_what_is_asked(page, server, browser):
    page.goto(server.address + "#view=features&sort=density")
    status(page, "96 features")
    shown = [int(link.inner_text()) for link in page.locator("tbody a").all()]
    counts = server.index.tables["count"]
    assert [counts[i] for i in shown] == sorted((counts[i] for i in shown), reverse=True)
    page.goto(server.address + "#view=features&sort=f1")
    page.reload()
    status(page, "96 features")
    assert page.locator("tbody a").first.inner_text() == "3"


def test_text_of_a_run_stays_text(page, server):
    index = server.index
    tokens = set(range(*index.tables["sentence_start"][:2]))
    feature = max(
        range(96), key=lambda i: sum(index.column(i)[1][[t in tokens for t in index.column(i)[0].tolist()]])
    )
    page.goto(f"{server.address}#view=features&feature={feature}")
    status(page, f"Feature {feature}")
    assert (
        page.get_by_text(HOSTILE, exact=False).first.is_visible()
        or HOSTILE in page.locator("main").inner_text()
    )
    assert page.title().startswith("Feature browser")
    assert page.locator("main script").count() == 0
    strongest = page.locator("ol.sentences .token.peak").first
    assert strongest.get_attribute("title").startswith("activation ")


def test_warnings_of_a_run_stand_on_top_as_text(page, server, tmp_path):
    page.goto(server.address)
    status(page, "features")
    assert page.get_by_role("complementary", name="Warnings").count() == 0
    told = ["<b>course-mbart</b> has not read such text", "x" * 500]
    warned = dataclasses.replace(server.index, about=server.index.about | {"warnings": told})
    export(warned, tmp_path / "page.html", n_features=3)
    older = dataclasses.replace(
        server.index, about={k: v for k, v in warned.about.items() if k != "warnings"}
    )
    export(older, tmp_path / "older.html", n_features=3)
    page.goto((tmp_path / "older.html").as_uri())
    status(page, "features")
    assert page.get_by_role("complementary", name="Warnings").count() == 0
    page.goto((tmp_path / "page.html").as_uri())
    status(page, "features")
    shown = page.get_by_role("complementary", name="Warnings").locator("p")
    assert shown.all_inner_texts() == [f"Warning: {text}." for text in told]
    assert shown.first.bounding_box()["y"] < page.get_by_role("main").bounding_box()["y"]
    assert page.evaluate("document.documentElement.scrollWidth") <= 1400


def test_a_sentence_its_changes_and_their_link(page, server):
    page.goto(server.address + "#view=try")
    box = page.get_by_role("textbox", name="Sentence")
    box.fill("the dog <b>sees</b> the bread.")
    box.press("Enter")
    status(page, "active at")
    assert page.get_by_role("heading", name="Original").is_visible()
    first = page.locator(".chips button").first
    name = first.get_attribute("aria-label")
    feature = re.fullmatch(r"Switch feature (\d+) off", name)[1]
    first.focus()
    page.keyboard.press("Space")
    page.get_by_role("heading", name="With 1 change").wait_for()
    assert page.get_by_role("button", name=name).first.get_attribute("aria-pressed") == "true"
    page.get_by_role("combobox", name=f"Change of feature {feature}", exact=True).select_option("set")
    page.get_by_role("spinbutton", name=f"Activation of feature {feature}").fill("2.5")
    page.keyboard.press("Tab")
    page.get_by_role("combobox", name=f"Tokens at which feature {feature} is changed").select_option("1")
    page.wait_for_function("f => location.hash.includes(encodeURIComponent(f + ':set:2.5:1'))", arg=feature)
    other = page.context.new_page()
    other.goto(page.url)
    other.get_by_role("heading", name="With 1 change").wait_for()
    assert other.get_by_role("textbox", name="Sentence").input_value() == "the dog <b>sees</b> the bread."
    assert other.get_by_role("spinbutton", name=f"Activation of feature {feature}").input_value() == "2.5"
    assert other.locator("main b", has_text="sees").count() == 0
    page.get_by_role("button", name=f"Remove the change of feature {feature}").click()
    page.get_by_role("heading", name="With no change").wait_for()
    page.get_by_role("textbox", name="Sentence").fill("the " * 60)
    page.get_by_role("button", name="Read and translate").click()
    status(page, "split it")
    assert page.locator("#status.error").is_visible()


def test_an_effect_is_measured_when_it_is_asked_for(page, server):
    feature = int(server.index.ranked()[4])
    page.goto(f"{server.address}#view=features&feature={feature}")
    page.get_by_role("button", name="Measure it now").click()
    status(page, f"The effect of feature {feature} is measured.")
    assert "random direction of the same length" in page.locator("#effect").inner_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_width_scrolls_sideways_and_every_control_has_a_name(page, server, scheme):
    page.emulate_media(color_scheme=scheme)
    for width in (360, 900, 1400):
        page.set_viewport_size({"width": width, "height": 800})
        for view in (
            "#view=features",
            "#view=features&feature=3",
            "#view=try",
            "#view=compare",
            "#view=compare&feature=3&other=5",
            "#view=sentences&find=the",
            "#view=sentences&sentence=0",
        ):
            page.goto("about:blank")
            page.goto(server.address + view)
            page.locator("main > *").first.wait_for()
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            unnamed = page.evaluate(
                "[...document.querySelectorAll('input, select, textarea, button, a')].filter(node =>"
                " !(node.labels?.length || node.getAttribute('aria-label') || node.textContent.trim())).length"
            )
            assert unnamed == 0


NAMES = (
    "sort",
    "language",
    "in",
    "feature",
    "source",
    "target",
    "change",
    "other",
    "list",
    "among",
    "find",
    "sentence",
)


def test_a_link_may_hold_anything(page, server):
    for value in ("__proto__", "constructor", "-1", "1e308", "%ff", "\u202e", "x" * 2000):
        for view in ("features", "sentences", "try", "compare", value):
            rest = "&".join(f"{name}={value}" for name in NAMES if view != "features" or name != "feature")
            page.goto("about:blank")
            page.goto(f"{server.address}#view={view}&text=the&{rest}")
            page.locator("main > *").first.wait_for()


def test_a_link_sorts_by_nothing_that_is_no_column(page, server):
    page.goto(server.address + "#view=features&sort=__proto__")
    status(page, "96 features")
    assert page.locator("tbody tr").count() == 60
    page.goto(server.address + "#view=features&feature=__proto__")
    page.reload()
    status(page, "no feature “__proto__”")


def test_why_a_feature_has_its_name_and_why_another_has_none(page, server):
    page.goto(server.address + "#view=features&feature=3")
    status(page, "Feature 3, <b>tool:nail</b>")
    why = page.locator("#why").inner_text()
    assert "it fires on 95% of the 40 sentences with “<b>tool:nail</b>”" in why
    assert "on 0.56% of the 360 without" in why
    assert "it is right 95% of the time" in why
    assert "94% of the way from always yes to perfect" in why
    assert "finds 95%, right 95%, 94% above chance" in page.locator(".list tbody").inner_text()
    page.goto(f"{server.address}#view=features&feature=5")
    status(page, "Feature 5")
    assert page.locator("#why").inner_text().startswith("No name.")


def test_search_finds_whole_words_and_beginnings_when_asked(page, server):
    found = server.index.summary()
    words = {word for own in found["words"] for word in own if word.isalpha() and len(word) > 2}
    part = next(
        word[:size]
        for word in sorted(words)
        for size in range(2, len(word))
        if word[:size] not in words and not any(word[:size] in (name or "") for name in found["names"])
    )
    page.goto(server.address)
    status(page, "96 features")
    search = page.get_by_role("searchbox", name="Search word, concept or number")
    for query, wanted in [
        *((word, lambda own, word=word: own == word) for word in sorted(words)[:5]),
        (part + "*", lambda own: own.startswith(part)),
    ]:
        search.fill(query)
        expected = {
            number
            for number, own in zip(found["id"], found["words"], strict=True)
            if any(wanted(word) for word in own)
        }
        page.wait_for_function(
            "n => document.querySelectorAll('.list tbody tr').length === Math.min(n, 60)", arg=len(expected)
        )
        shown = {int(link.inner_text()) for link in page.locator(".list tbody a").all()}
        assert shown <= expected
        assert len(shown) == min(len(expected), 60)
    search.fill(part)
    status(page, "No feature has that number")


def test_a_word_leads_to_its_sentences_their_features_and_back(page, server):
    found = server.index.find("do*")
    page.goto(server.address)
    status(page, "96 features")
    page.get_by_role("link", name="Sentences", exact=True).click()
    status(page, "Type a word")
    search = page.get_by_role("searchbox", name="Word, beginning of one, or sentence")
    search.focus()
    page.keyboard.type("do*")
    status(page, f"{found['count']} sentence")
    assert page.evaluate("document.activeElement.id") == "find"
    rows = page.locator("ol.hits > li")
    assert rows.count() == len(found["sentences"])
    for at, row in enumerate(found["sentences"]):
        assert rows.nth(at).locator("> span").first.inner_text() == row["text"]
        chips = rows.nth(at).locator(".chips b").all_inner_texts()
        assert chips == [str(feature["id"]) for feature in row["features"]]
    assert set(rows.locator("mark").all_inner_texts()) == {"dog", "document"}
    first = found["sentences"][0]["features"][0]
    rows.first.get_by_role("link", name=re.compile(f"^Feature {first['id']}:")).click()
    status(page, f"Feature {first['id']}")
    page.get_by_role("link", name="← Sentences with “do*”").click()
    status(page, f"{found['count']} sentence")
    page.get_by_role("combobox", name="Sentences in").select_option("fr_XX")
    status(page, f"{server.index.find('do*', language='fr_XX')['count']} sentence")
    number = server.index.find("do*", language="fr_XX")["sentences"][0]["id"]
    page.get_by_role("link", name=f"All features of sentence {number}", exact=True).click()
    status(page, f"Sentence {number}, ")
    one = server.index.sentence(number)
    other = page.context.new_page()
    other.goto(page.url)
    status(other, f"Sentence {number}, ")
    assert other.locator(".whole > span").first.inner_text() == one["text"]
    listed = other.get_by_role("list", name="Features of this sentence").locator("b").all_inner_texts()
    assert listed == [str(feature["id"]) for feature in one["features"]]
    other.go_back()
    page.get_by_role("link", name="Change features on it").click()
    assert page.get_by_role("textbox", name="Sentence").input_value() == one["text"]
    page.get_by_role("heading", name="Original").wait_for()


def test_from_a_feature_to_a_sentence_and_from_its_word_to_sentences(page, server):
    page.goto(server.address + "#view=features&feature=3")
    status(page, "Feature 3")
    strongest = server.index.feature(3)["groups"][0]["sentences"][0]["id"]
    page.get_by_role("link", name=f"Features of sentence {strongest}", exact=True).first.click()
    status(page, f"Sentence {strongest}, ")
    page.go_back()
    status(page, "Feature 3")
    page.get_by_role("searchbox").fill("dog")
    page.get_by_role("link", name="Sentences with “dog”").click()
    status(page, f"{server.index.find('dog')['count']} sentence")
    page.get_by_role("searchbox").fill("nothing like it")
    status(page, "No sentence holds all these words")
    page.goto(server.address + "#view=sentences&sentence=99999")
    status(page, "sentence is 99999")


def test_two_pages_of_two_servers_keep_the_notes_of_both(page, run):
    servers = [serve(run, threads=1, progress=False) for _ in range(2)]
    pages = [page, page.context.new_page()]
    try:
        for one, started in zip(pages, servers, strict=True):
            one.goto(started.address + "#view=features&feature=3")
            status(one, "Feature 3")
            one.get_by_text("Your note and lists").click()
        boxes = [one.get_by_role("textbox", name="Note on this feature") for one in pages]
        boxes[0].fill("first")
        pages[0].keyboard.press("Tab")
        status(pages[0], "The note is kept.")
        # The other page was opened before that.
        boxes[1].fill("second")
        pages[1].keyboard.press("Tab")
        status(pages[1], "Another page changed this note in the meantime")
        assert boxes[1].input_value() == "first\nsecond"
        pages[0].get_by_role("combobox", name="Put it on a list").fill("to check")
        pages[0].keyboard.press("Enter")
        status(pages[0], "Feature 3 is on the list to check.")
        assert boxes[0].input_value() == "first\nsecond"
        kept = json.loads((run / "browse_notes.json").read_text())["features"]
        assert kept == {"3": {"note": "first\nsecond", "lists": ["to check"]}}
    finally:
        for one, started in zip(pages, servers, strict=True):
            one.goto("about:blank")
            started.close()
        (run / "browse_notes.json").unlink(missing_ok=True)


def test_notes_and_lists_outlive_page_and_server(page, run):
    notes = run / "browse_notes.json"
    first = serve(run, threads=1, progress=False)
    try:
        page.goto(first.address + "#view=features&feature=3")
        page.get_by_text("Your note and lists").click()
        page.get_by_role("textbox", name="Note on this feature").fill("nails <i>and</i> more")
        page.keyboard.press("Tab")
        status(page, "The note is kept.")
        page.get_by_role("combobox", name="Put it on a list").fill("to check")
        page.keyboard.press("Enter")
        status(page, "Feature 3 is on the list to check.")
        old = page.url
    finally:
        page.goto("about:blank")
        first.close()
    again = serve(run, threads=1, progress=False)
    try:
        assert again.port != first.port
        page.goto(again.address)
        status(page, "96 features")
        # The old address does not lead here, but its view is opened.
        page.get_by_role("searchbox").fill(old)
        status(page, "Feature 3")
        assert (
            page.get_by_role("textbox", name="Note on this feature").input_value() == "nails <i>and</i> more"
        )
        page.get_by_role("list", name="Lists that hold this feature").get_by_role("link").click()
        status(page, "1 feature of 96")
        with page.expect_download() as download:
            page.get_by_text("Notes and lists", exact=True).click()
            page.get_by_role("button", name="Export notes").click()
        kept = json.loads(download.value.path().read_text())
        assert kept["features"] == {"3": {"note": "nails <i>and</i> more", "lists": ["to check"]}}
        assert kept == json.loads(notes.read_text())
        page.get_by_role("link", name=re.compile("^Feature 3:")).click()
        page.get_by_role("button", name="Take feature 3 off the list to check").click()
        status(page, "off the list")
        page.get_by_role("textbox", name="Note on this feature").fill("")
        page.keyboard.press("Tab")
        status(page, "The note is kept.")
        assert json.loads(notes.read_text())["features"] == {}
    finally:
        page.goto("about:blank")
        again.close()
        notes.unlink(missing_ok=True)


def test_two_features_side_by_side(page, server):
    a, b = (int(feature) for feature in server.index.ranked()[:2])
    page.goto(f"{server.address}#view=features&feature={a}")
    page.get_by_role("spinbutton", name="Compare with feature").fill(str(b))
    page.keyboard.press("Enter")
    status(page, f"Features {a} and {b}.")
    together = server.index.together(a, b)
    text = page.locator("main").inner_text()
    assert f"Both are active at {together['tokens'][2]:,} token" in text
    assert f"Both are active in {together['sentences'][2]:,} sentence" in text
    cosine = float(re.search(r"write to a state is (-?[\d.e-]+):", text)[1])
    assert cosine == pytest.approx(together["cosine"], rel=0.01)
    for feature in (a, b):
        half = page.get_by_role("region", name=f"Feature {feature}", exact=True)
        assert half.get_by_role("img", name=re.compile("Histogram")).is_visible()
        assert half.locator("ol.sentences li").count() > 0
    page.reload()
    status(page, f"Features {a} and {b}.")
    page.get_by_role("spinbutton", name="and feature").fill(str(a))
    page.keyboard.press("Enter")
    page.get_by_text("one feature twice").wait_for()


def test_words_of_translations_differ_by_more_than_their_punctuation(page, server):
    answers = {
        "original": "Die Datei ist offen.",
        "reconstructed": "„Die“ Datei, ist offen",
        "changed": "Die Zelle ist offen.",
    }
    page.route("**/api/translate", lambda route: route.fulfill(json=answers))
    page.goto(server.address + "#view=try&text=the+dog")
    page.get_by_role("heading", name="Original").wait_for()
    cards = page.locator("article.card")
    assert [cards.nth(n).locator("mark").all_inner_texts() for n in range(3)] == [[], [], ["Zelle"]]
    assert "only punctuation" in cards.nth(1).inner_text()
    assert "different words are marked" in cards.nth(2).inner_text()


def test_no_table_is_cut_where_words_are_long(page, named):
    long = named("Datenbankdokumentkonfigurationsdialogfeld")
    with_effect = int(long.index.effects.features[0])
    for width in (1280, 1400, 1600, 1920):
        page.set_viewport_size({"width": width, "height": 900})
        for feature in (3, with_effect):
            page.goto("about:blank")
            page.goto(f"{long.address}#view=features&feature={feature}")
            status(page, f"Feature {feature}")
            wide = page.evaluate(
                "[...document.querySelectorAll('.scroll')].filter(node => node.scrollWidth > node.clientWidth)"
                ".map(node => node.firstChild.getAttribute('aria-label'))"
            )
            assert wide == [], width


LONG = "n" * 20_000


@pytest.fixture
def named(server, page):
    """A server of the same run in which every name is as the test says."""
    started = []

    def with_name(name):
        index = server.index
        about = index.about | {"run": name, "model": name}
        about["languages"] = [name + language for language in about["languages"]]
        concepts = {3: [row | {"concept": name + str(at)} for at, row in enumerate(index.concepts[3])]}
        effects = dataclasses.replace(index.effects, pieces=[name] * len(index.effects.pieces))
        other = dataclasses.replace(
            index, about=about, concepts=concepts, effects=effects, pieces=[name] * len(index.pieces)
        )
        started.append(Server(other, lambda: server.answers.browser))
        return started[0]

    yield with_name
    page.goto("about:blank")  # it asks the server no more
    for one in started:
        one.close()


def test_a_long_name_makes_no_page_wide(page, named):
    measured = named(LONG)
    with_effect = int(measured.index.effects.features[0])
    for width in (360, 900, 1400):
        page.set_viewport_size({"width": width, "height": 800})
        for view in ("features", "features&feature=3", f"features&feature={with_effect}", f"try&text={LONG}"):
            page.goto("about:blank")
            page.goto(f"{measured.address}#view={view}")
            page.locator("main > *").first.wait_for()
            status(page, "")
            assert page.evaluate("document.documentElement.scrollWidth") <= width, (width, view[:30])


def test_no_text_of_a_run_turns_the_direction_of_the_page(page, named):
    other = named("\u202eabc\u2069\u202d")
    page.goto(other.address + "#view=features&feature=3")
    status(page, "Feature 3")
    assert page.evaluate(r"/[\u202a-\u202e\u2066-\u2069]/.test(document.documentElement.innerText)") is False
    assert "⟨U+202E⟩abc⟨U+2069⟩⟨U+202D⟩" in page.locator("#run").inner_text()
    assert page.locator("#feature-title bdi").count() == 1
    assert "U+202E" in page.title()


def test_the_exported_file_works_alone(page, server, tmp_path):
    out = tmp_path / "features.html"
    index = server.index
    export(index, out, n_features=5)
    page.goto(out.as_uri())
    status(page, "5 features")
    strongest = int(index.ranked()[0])
    page.get_by_role("link", name=re.compile(f"^Feature {strongest}:")).click()
    status(page, f"Feature {strongest}")
    assert page.locator("ol.sentences li").count() > 3
    other = int(index.ranked()[1])
    page.get_by_role("spinbutton", name="Compare with feature").fill(str(other))
    page.keyboard.press("Enter")
    status(page, f"Features {strongest} and {other}.")
    together = index.together(strongest, other)
    assert f"Both are active at {together['tokens'][2]:,} token" in page.locator("main").inner_text()
    own = page.locator("main > section").inner_text()
    live = page.context.new_page()
    live.goto(server.address + page.url[page.url.index("#") :])
    status(live, f"Features {strongest} and {other}.")
    assert live.locator("main > section").inner_text() == own
    shading = "nodes => nodes.map(node => node.textContent + node.style.getPropertyValue('--a'))"
    assert live.locator("main .token").evaluate_all(shading) == page.locator("main .token").evaluate_all(
        shading
    )
    live.close()
    page.get_by_role("link", name="Sentences", exact=True).click()
    page.get_by_role("searchbox").fill("the b*")
    status(page, "The numbers are")
    held = {int(number): one for number, one in index.codes(range(80), index.ranked()[:5]).items()}
    rows = page.locator("ol.hits > li")
    assert rows.count() > 2
    for row in rows.all():
        text, (label, *_) = row.locator("> span").first.inner_text(), row.locator("ul").all()
        number = int(label.get_attribute("aria-label").rpartition(" ")[2])
        assert re.search(r"\bthe\b", text, re.IGNORECASE)
        assert re.search(r"\bb", text, re.IGNORECASE)
        assert text == "".join(held[number]["pieces"])
        assert set(row.locator(".chips b").all_inner_texts()) == {str(f) for f in held[number]["code"]}
    rows.first.get_by_role("link", name=re.compile("^All features")).click()
    status(page, "active.")
    assert "This file holds" in page.locator("main").inner_text()
    page.goto(f"{out.as_uri()}#view=features&feature={strongest}")
    page.get_by_text("Your note and lists").click()
    page.get_by_role("textbox", name="Note on this feature").fill("kept here")
    page.keyboard.press("Tab")
    status(page, "The note is kept.")
    page.get_by_text("Notes and lists", exact=True).click()
    with page.expect_download() as download:
        page.get_by_role("button", name="Export notes").click()
    saved = tmp_path / "notes.json"
    download.value.save_as(saved)
    page.reload()
    note = page.get_by_role("textbox", name="Note on this feature")
    assert note.input_value() == "kept here"
    page.evaluate("localStorage.clear()")
    page.reload()
    page.get_by_text("Your note and lists").click()
    assert note.input_value() == ""
    page.get_by_text("Notes and lists", exact=True).click()
    page.get_by_label("Import notes").set_input_files(saved)
    status(page, "Notes on 1 feature were read.")
    assert note.input_value() == "kept here"
    saved.write_text(saved.read_text().replace(index.identity, "0" * 16))
    page.get_by_text("Notes and lists", exact=True).click()
    page.get_by_label("Import notes").set_input_files(saved)
    status(page, "another autoencoder")
    page.get_by_role("link", name="Try a sentence").click()
    assert "python -m course_lib browse" in page.locator("main").inner_text()
