"""The page in a real browser: wide and narrow, light and dark, on paper."""

from io import BytesIO

import numpy as np
import pytest
from PIL import Image
from results import KINDS, result


@pytest.fixture
def opened(browser, tmp_path):
    """Opens a page and collects what the browser complains of and asks for."""
    contexts = []

    def show(text, **settings):
        path = tmp_path / "report.html"
        path.write_text(text, encoding="utf-8")
        context = browser.new_context(**settings)
        contexts.append(context)
        tab = context.new_page()
        complaints, asked = [], []
        tab.on("console", lambda message: complaints.append(message.text))
        tab.on("pageerror", lambda error: complaints.append(str(error)))
        tab.on("dialog", lambda dialog: complaints.append(dialog.message))
        tab.on("request", lambda request: asked.append(request.url[:5]))
        tab.goto(path.as_uri(), wait_until="load")
        return tab, complaints, asked

    yield show
    for context in contexts:
        context.close()


@pytest.mark.slow
@pytest.mark.parametrize(("width", "media"), [(390, "screen"), (1280, "screen"), (718, "print")])
@pytest.mark.parametrize("kind", KINDS)
def test_no_complaint_no_request_no_overflow(kind, width, media, opened):
    """A4 without margins of 1 cm is 718 CSS pixels wide."""
    tab, complaints, asked = opened(
        KINDS[kind]().report(), viewport={"width": width, "height": 844}
    )
    tab.emulate_media(media=media)
    opening = f"all => all.forEach(d => d.open = {'true' if media == 'screen' else 'false'})"
    tab.eval_on_selector_all("details", opening)
    assert tab.evaluate("document.documentElement.scrollWidth") == width
    seen = "all => all.every(i => i.complete && i.naturalWidth > 0)"
    assert tab.eval_on_selector_all("img", seen)
    assert complaints == []
    assert set(asked) <= {"file:", "data:"}
    assert asked.count("file:") == 1


def test_a_page_that_is_too_wide_or_complains_would_be_noticed(opened):
    spoilt = result().report().replace("</main>", '<img src="x.png" alt="" width="900"></main>')
    tab, complaints, _ = opened(spoilt, viewport={"width": 390, "height": 844})
    tab.add_style_tag(content="img[alt=''] { min-width: 900px }")
    assert tab.evaluate("document.documentElement.scrollWidth") > 390
    assert complaints


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pictures_follow_the_colour_scheme(scheme, opened):
    tab, _, _ = opened(result().report(), color_scheme=scheme)
    shot = Image.open(BytesIO(tab.locator("img").first.screenshot())).convert("L")
    grey = np.asarray(shot, dtype=float)
    ground = np.median(grey)
    assert (ground > 200) if scheme == "light" else (ground < 60)
    assert np.abs(grey - ground).max() > 150  # axes and texts stand out


def test_on_paper_it_is_light(opened):
    tab, _, _ = opened(result().report(), color_scheme="dark")
    tab.emulate_media(media="print", color_scheme="dark")
    ground = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == "rgb(255, 255, 255)"
    assert not tab.locator("nav").is_visible()
    assert tab.pdf(format="A4").startswith(b"%PDF")


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_paper_loses_nothing(kind, opened):
    """What is folded on the screen has its height on paper, and nothing is wider than A4."""
    tab, _, _ = opened(KINDS[kind]().report(), viewport={"width": 718, "height": 900})
    tab.emulate_media(media="print")
    heights = "all => all.map(d => d.getBoundingClientRect().height)"
    folded = tab.eval_on_selector_all("details", heights)
    tab.eval_on_selector_all("details", "all => all.forEach(d => d.open = true)")
    assert folded == pytest.approx(tab.eval_on_selector_all("details", heights))
    assert not folded or min(folded) > 30
    inside = "all => all.every(e => e.getBoundingClientRect().right <= 719)"
    assert tab.eval_on_selector_all("table, math, img, pre", inside)


def test_equations_are_typeset(opened):
    tree = ["=", ["d", "A"], ["-", ["/", ["*", "k1", "A"], ["+", 1.0, "K<b>"]]]]
    tab, complaints, _ = opened(result(equations=(tree,)).report())
    assert complaints == []
    assert tab.locator("math mfrac").count() == 2
    ratio, lower = (tab.locator(f"math {e}").last.bounding_box() for e in ("mfrac", "mn"))
    assert lower["y"] > ratio["y"] + ratio["height"] / 3  # below the line


@pytest.mark.slow
def test_the_keyboard_leads_past_the_contents(opened):
    tab, _, _ = opened(result().report())
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.className") == "skip"
    tab.keyboard.press("Enter")
    assert tab.evaluate("document.activeElement.id") == "main"
