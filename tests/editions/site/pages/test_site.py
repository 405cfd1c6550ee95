"""The built site in a browser: at three widths, by keyboard, with axe, and without any other host."""

import json
import re
from urllib.parse import unquote, urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe

from course_lib.lessons.catalog import LESSONS

pytestmark = pytest.mark.browser

WIDTHS = (360, 900, 1400)
LESSON_PAGES = [f"lessons/{lesson.notebook.removesuffix('.ipynb')}.html" for lesson in LESSONS]
PAGE_OF = {lesson.slug: page for lesson, page in zip(LESSONS, LESSON_PAGES, strict=True)}
PAGES = [
    "index.html",
    "open.html",
    "lessons.html",
    "measured.html",
    "sentences.html",
    "symbols.html",
    "sources.html",
    "correct.html",
    "search.html",
    "api/course_lib.attention.html",
    *LESSON_PAGES,
]
MAX_BYTES = 3_000_000

# What sticks out of the page to the right and is not within a box that scrolls by itself; a wide control may stick out
# of a page that does not scroll.
OUTSIDE = """() => {
  const found = (selector) => [...document.querySelectorAll(selector)]
    .filter((e) => e.getBoundingClientRect().right > window.innerWidth + 1)
    .slice(0, 5).map((e) => `${e.tagName} ${e.className}`);
  return document.documentElement.scrollWidth > window.innerWidth
    ? [...found("article *"), "the page scrolls sideways"]
    : found(".course-controls *");
}"""
AXE = {
    "runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"],
    "resultTypes": ["violations"],
}
# Contrast takes axe longer than all else together. All lessons have one stylesheet: it is looked at on these.
FOR_CONTRAST = [
    "index.html",
    LESSON_PAGES[1],
    PAGE_OF["kernelized_attention"],
    PAGE_OF["mbart_to_sparse_features"],
]


def violations(page, *, contrast=True):
    """What axe-core finds, as the rule and the first elements that break it."""
    # MathJax gives MathML to be read aloud, which axe does not read; formulas count as plain text for it.
    page.evaluate(
        "document.querySelectorAll('mjx-container').forEach((one) => one.replaceWith(one.textContent || 'x'))"
    )
    options = AXE if contrast else {**AXE, "rules": {"color-contrast": {"enabled": False}}}
    found = Axe().run(page, options=options).response["violations"]
    return [f"{one['id']}: {node['html'][:200]}" for one in found for node in one["nodes"][:3]]


def revealed(page):
    """Show all that waits for a guess."""
    for button in page.locator(".course-peek").all():
        button.click()


def moved(page):
    """Move every slider of the page by key; return what did not follow."""
    faults = []
    for explorer in page.locator(".course-explorer").all():
        explorer.scroll_into_view_if_needed()
        words, image = explorer.locator("[role=status]"), explorer.locator("img")
        for slider in explorer.locator("input[type=range]").all():
            name = slider.get_attribute("aria-label")
            slider.focus()
            for key in ("Home", "End"):
                before = (
                    words.inner_text(),
                    image.get_attribute("src"),
                    slider.get_attribute("aria-valuetext"),
                )
                page.keyboard.press(key)
                after = (
                    words.inner_text(),
                    image.get_attribute("src"),
                    slider.get_attribute("aria-valuetext"),
                )
                if key == "End" and (before[1] == after[1] or before[2] == after[2]):
                    faults.append((name, key, after))
                if after[0] not in image.get_attribute("alt"):
                    faults.append((name, "the picture's text is another", after))
        if explorer.locator("input[type=range]").count():
            image.evaluate("image => image.decode()")
            if not image.evaluate("image => image.naturalWidth"):
                faults.append((image.get_attribute("src"), "no picture"))
    return faults


@pytest.mark.parametrize("place", PAGES)
def test_a_page_is_whole(place, visit, address, site):
    page = visit(place)
    assert page.evaluate(OUTSIDE) == []
    revealed(page)
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        assert (width, page.evaluate(OUTSIDE)) == (width, [])
    asked = {url for url in page.requested if not url.startswith(("data:", "blob:"))}
    assert [url for url in asked if not url.startswith(f"{address}/")] == []
    paths = {unquote(urlsplit(url).path).lstrip("/") for url in asked}
    weight = sum((site / path).stat().st_size for path in paths if not path.startswith("_explorers/"))
    assert weight <= MAX_BYTES
    assert violations(page, contrast=False) == []
    assert moved(page) == []
    assert page.faults == []
    assert page.locator("mjx-merror").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("place", FOR_CONTRAST)
def test_contrast_holds_in_both_schemes(place, scheme, visit):
    page = visit(place, color_scheme=scheme)
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (background in ("rgb(255, 255, 255)", "white")) == (scheme == "light")
    assert violations(page) == []


def test_the_way_back_to_the_top_belongs_to_the_page(visit):
    page = visit(LESSON_PAGES[1])
    back = page.get_by_text("Back to top")
    assert not back.is_visible()
    for y in (3000, 1500):  # it shows after a scroll upwards
        page.evaluate(f"window.scrollTo(0, {y})")
        page.wait_for_timeout(200)
    assert back.is_visible()
    assert violations(page, contrast=False) == []
    back.click()
    page.wait_for_function("window.scrollY === 0")


def test_axe_is_at_work(visit):
    page = visit(LESSON_PAGES[1])
    page.evaluate("document.querySelector('article img').removeAttribute('alt')")
    page.evaluate("document.querySelector('.course-words').style.color = '#ddd'")
    found = " ".join(violations(page))
    assert "image-alt" in found
    assert "color-contrast" in found


def test_two_controls_that_act_together_move_and_any_other_puts_them_back(visit):
    page = visit(LESSON_PAGES[1])
    explorer = page.locator(".course-explorer").first
    data = json.loads(explorer.locator("script").text_content())
    grid, controls = data["grid"], data["controls"]
    pair = [explorer.get_by_label(controls[i]["label"], exact=True) for i in grid["controls"]]
    other = explorer.locator(".course-controls > div").nth(1).locator("input").first
    words, image = explorer.locator("[role=status]"), explorer.locator("img")

    def shown():
        return words.inner_text(), image.get_attribute("src").rpartition("/")[2]

    start = shown()
    seen = set()
    for key, a in (("End", -1), ("Home", 0)):
        pair[0].press(key)
        for other_key, b in (("Home", 0), ("End", -1)):
            pair[1].press(other_key)
            # The first control stayed where it was put, and words, picture and text belong to both settings.
            assert shown() == (grid["words"][a][b], grid["files"][a][b])
            assert grid["words"][a][b] in image.get_attribute("alt")
            seen.add(shown())
    assert len(seen) == 4
    other.press("Home")
    defaults = [controls[i]["default"] for i in grid["controls"]]
    assert [int(one.input_value()) for one in pair] == defaults
    alone = shown()
    assert alone not in seen | {start}
    pair[1].press("End")
    assert shown() == (grid["words"][defaults[0]][-1], grid["files"][defaults[0]][-1])
    pair[1].press("Home")
    for _ in range(defaults[1]):
        pair[1].press("ArrowRight")
    assert shown() == start


def test_the_frames_of_two_controls_are_fetched_when_the_reader_turns_to_them(visit):
    page = visit(LESSON_PAGES[1])
    explorer = page.locator(".course-explorer").first
    explorer.scroll_into_view_if_needed()

    def fetched():
        return {url.rpartition("/")[2] for url in page.requested if url.endswith(".webp")}

    assert fetched() <= {"default.webp"}
    slider = explorer.locator("input[type=range]").first
    slider.focus()
    page.wait_for_load_state("networkidle")
    # One line of the grid, not all of it.
    assert 1 < len(fetched()) <= int(slider.get_attribute("max")) + 1


def test_a_slider_can_be_touched(visit):
    page = visit(LESSON_PAGES[1], has_touch=True)
    explorer = page.locator(".course-explorer").first
    slider = explorer.locator("input[type=range]").first
    before = explorer.locator("[role=status]").inner_text()
    slider.scroll_into_view_if_needed()
    box = slider.bounding_box()
    page.touchscreen.tap(box["x"] + 0.98 * box["width"], box["y"] + box["height"] / 2)
    assert explorer.locator("[role=status]").inner_text() != before


# What a form says first after a wrong and after a right answer: of a prediction, and of a sentence of the quiz.
OPENINGS = {"P": ("Not what happens. ", "As you predicted. "), "Q": ("No. ", "Right. ")}


@pytest.mark.parametrize("place", LESSON_PAGES[1:3])
def test_every_answer_to_a_prediction_is_told_its_own_sentence(place, visit):
    page = visit(place)
    forms = page.locator("form.course-prediction")
    assert forms.count() >= 2
    for form in forms.all():
        assert not form.locator("dl").is_visible()
        assert form.locator("button[type=submit]").is_disabled()
        said = set()
        for choice, answer in zip(form.locator("input").all(), form.locator("dd").all(), strict=True):
            choice.check()
            form.locator("button[type=submit]").click()
            line = form.locator("[role=status]").text_content()
            right = answer.get_attribute("data-right") == "true"
            assert line.startswith(OPENINGS["Q" if ".Q" in form.get_attribute("id") else "P"][right])
            assert line.split(". ", 1)[1] in answer.text_content()
            said.add(line)
        # A sentence of the quiz has one explanation, whatever was marked.
        assert len(said) == (2 if ".Q" in form.get_attribute("id") else form.locator("input").count())


def answers(page, number):
    """What waits for the guess of a prediction: the marked parts between its form and the next one."""
    return page.locator(".course-answer, .cell.tag_course-answer").locator(
        f"xpath=self::*[preceding::form[1]/@id='prediction-{number}']"
    )


def visible(parts):
    # Not `is_visible`: a part may be a bare anchor, which has no height.
    return parts.evaluate_all("all => all.map((one) => getComputedStyle(one).display !== 'none')")


def test_results_wait_for_a_guess_or_for_the_button(visit):
    page = visit(PAGE_OF["convolution"])
    second, third = answers(page, "10.P2"), answers(page, "10.P3")
    assert second.count()
    assert third.count()
    assert not any(visible(second) + visible(third))
    form = page.locator('form[id="prediction-10.P2"]')
    button = form.locator(".course-peek")
    note = page.locator(".course-waiting", has_text="10.P2").first
    assert note.is_visible()
    for expanded in (True, False):
        button.press("Enter")
        assert button.get_attribute("aria-expanded") == str(expanded).lower()
        assert set(visible(second)) == {expanded}
        assert note.is_visible() != expanded
        assert button.evaluate("one => one === document.activeElement")
    form.locator("input").last.check()
    form.locator("button[type=submit]").click()
    assert all(visible(second))
    assert not button.is_visible()
    # The other prediction still waits for its own guess.
    assert not any(visible(third))


def test_a_link_to_an_equation_that_waits_shows_it(visit):
    page = visit(PAGE_OF["convolution"])
    # Numbered in the passage that answers the second prediction.
    number = answers(page, "10.P2").locator("[id^=eq-]").first.get_attribute("id")
    page.evaluate("id => { location.hash = id; }", number)
    page.wait_for_selector(f'[id="{number}"]', state="attached")
    page.wait_for_function("id => document.getElementById(id).getBoundingClientRect().top < 900", arg=number)
    assert all(visible(answers(page, "10.P2")))
    assert not any(visible(answers(page, "10.P3")))
    again = visit(f"{PAGE_OF['convolution']}#{number}")
    assert all(visible(answers(again, "10.P2")))


def test_what_waits_for_a_guess_is_printed(visit):
    page = visit(PAGE_OF["convolution"])
    page.emulate_media(media="print")
    assert all(visible(answers(page, "10.P2")))
    assert not page.locator(".course-waiting").first.is_visible()
    assert not page.locator(".course-peek").first.is_visible()


def test_without_scripts_nothing_waits(visit):
    page = visit(PAGE_OF["convolution"], java_script_enabled=False)
    assert all(visible(answers(page, "10.P2")))
    assert answers(page, "10.P2").count()


def test_without_scripts_the_page_says_all(visit):
    page = visit(LESSON_PAGES[1], java_script_enabled=False)
    explorer = page.locator(".course-explorer").first
    assert explorer.locator("img").is_visible()
    assert explorer.locator(".course-words").inner_text()
    form = page.locator("form.course-prediction").first
    form.locator("summary").click()
    assert form.locator("dl").is_visible()
    strip = page.locator("details.course-strip").first
    strip.locator("summary").click()
    assert strip.locator("img").is_visible()


def test_hints_unfold_one_by_one(visit):
    page = visit(LESSON_PAGES[1])
    summaries = page.locator(".course-hints").first.locator("summary")
    assert [one.is_visible() for one in summaries.all()] == [True, False, False]
    summaries.nth(0).click()
    assert [one.is_visible() for one in summaries.all()] == [True, True, False]


def test_search_finds_a_lesson_by_a_word_of_its_text(visit):
    page = visit("search.html?q=sharpness")
    page.wait_for_selector("#search-results li a")
    links = [one.get_attribute("href") for one in page.locator("#search-results li a").all()]
    assert any("01_gradient_descent_stability" in link for link in links)


def test_an_equation_is_reached_from_another_lesson(visit):
    page = visit(LESSON_PAGES[1])
    link = page.locator("a.equation").first
    number = re.search(r"eq-(\d\d\.\d+)", link.get_attribute("href"))[1]
    link.click()
    anchor = page.locator(f'[id="eq-{number}"]')
    top = anchor.bounding_box()["y"]
    assert 0 <= top < 900


def test_previous_and_next_follow_the_lessons(visit):
    page = visit(LESSON_PAGES[1])
    assert (
        page.locator("a.next-page").get_attribute("href").endswith(LESSON_PAGES[2].removeprefix("lessons/"))
    )
    assert page.locator("a.prev-page").get_attribute("href").endswith("00_start_here.html")


def test_the_front_page_is_short_and_has_one_picture_to_move_one_question_and_three_doors(visit):
    page = visit("index.html")
    explorer = page.locator(".course-explorer")
    assert explorer.count() == 1
    assert explorer.locator("input, select").count() == 2
    assert page.locator("form.course-prediction").count() == 1
    assert answers(page, "01.P1").count() >= 2
    doors = page.locator(".course-card a")
    assert doors.count() == 3
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollHeight") < 6000
    # At a desk the doors are on the first screen, and no list of lessons is.
    assert doors.last.bounding_box()["y"] < 900
    links = [one for one in page.locator("a[href*='lessons/']").all() if one.is_visible()]
    shown = [one.get_attribute("href") for one in links if one.bounding_box()["y"] < 900]
    assert shown == ["lessons/00_start_here.html"]
    doors.nth(1).click()
    page.wait_for_url("**/lessons.html#Attention")


def test_in_the_list_of_pages_the_part_that_holds_the_page_is_unfolded(visit):
    page = visit(LESSON_PAGES[1])
    opened = page.locator(".course-part-pages").evaluate_all("all => all.map((one) => one.open)")
    assert opened == [True, *[False] * 5]
    folded = page.locator(".course-part-pages").nth(1)
    assert not folded.locator("a").first.is_visible()
    folded.locator("summary").press("Enter")
    assert folded.locator("a").first.is_visible()


def test_every_page_says_how_it_is_corrected(visit):
    for place in ("index.html", LESSON_PAGES[3], "api/course_lib.attention.html", "sources.html"):
        page = visit(place)
        page.locator(".course-correct a").last.click()
        page.wait_for_url("**/correct.html")


def test_a_source_is_reached_from_where_it_is_named_and_leads_back(visit):
    page = visit(PAGE_OF["attention_scaling"])
    link = page.locator("a.source", has_text="Vaswani").first
    anchor = link.get_attribute("href").partition("#")[2]
    link.click()
    page.wait_for_url(f"**/sources.html#{anchor}")
    entry = page.locator("li", has=page.locator(f'[id="{anchor}"]'))
    assert "Attention Is All You Need" in entry.inner_text()
    number = next(lesson.number for lesson in LESSONS if lesson.slug == "attention_scaling")
    entry.get_by_role("link", name=number, exact=True).click()
    page.wait_for_url(f"**/lessons/{number}_*.html")


# What is wider than the sheet, and whether the link that jumps over the menu is there.
CUT = """() => [...document.querySelectorAll("article pre, article table, article img, .course-frame, mjx-container")]
  .filter((one) => one.getBoundingClientRect().width && (one.getBoundingClientRect().right > innerWidth + 1
    || (getComputedStyle(one).overflowX !== "visible" && one.scrollWidth > one.clientWidth + 1)))
  .map((one) => `${one.tagName}: ${one.innerText.slice(0, 60)}`)"""
SHEET = {"width": 718, "height": 1047}  # what a sheet of A4 has between Chromium's margins, in pixels


@pytest.mark.parametrize("place", ["index.html", *LESSON_PAGES])
def test_a_printed_page_cuts_nothing_and_has_no_half_empty_sheets(place, visit):
    page = visit(place)
    page.set_viewport_size(SHEET)
    page.emulate_media(media="print")
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate(CUT) == []
    assert not page.locator(".skip-to-content").is_visible()
    assert not page.locator(".course-correct").is_visible()
    filled = page.evaluate("document.documentElement.scrollHeight") / SHEET["height"]
    sheets = len(re.findall(rb"/Type\s*/Page\b", page.pdf(format="A4")))
    assert sheets <= 1.15 * filled + 1
