"""The page of a report: valid, self-contained, accessible, harmless, and always the same."""

import re
from base64 import b64decode
from dataclasses import replace
from datetime import date
from itertools import pairwise
from xml.etree import ElementTree

import html5lib
import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt
from ode import ode
from results import EVIL, KINDS, MAP, result

import igpe
from igpe.core.errors import DataError
from igpe.results.report import CSS, DARK, LIGHT, SECTIONS, Section, gallery, page, residual
from igpe.results.residual_table import ADEQUATE, LACK, Adequacy

ADDRESSES = ("src", "href", "action", "data", "poster", "srcset", "background")
HEADINGS = ["h1", "h2", "h3"]
SVG = "{http://www.w3.org/2000/svg}"


def parsed(text):
    """Raises at the first error of HTML."""
    parser = html5lib.HTMLParser(strict=True, namespaceHTMLElements=False)
    return parser.parse(text)


def said(element):
    return "".join(element.itertext())


def pictures(tree):
    uris = [image.get("src") for image in tree.iter("img")]
    return [ElementTree.fromstring(b64decode(uri.partition(",")[2])) for uri in uris]


@pytest.fixture(scope="module", params=KINDS)
def written(request):
    return KINDS[request.param]().report()


@pytest.fixture(scope="module")
def tree(written):
    return parsed(written)


@pytest.fixture(scope="module")
def ordinary():
    return parsed(result().report())


def test_single_tests_do_not_contradict_the_verdict():
    lack = Adequacy(LACK, 0.001, ("Residuals of A are not random over time (p < 0.01).",))
    for judged, is_said in ((lack, True), (Adequacy(ADEQUATE, 0.4), False)):
        html = residual(replace(result(), adequacy=judged)).html
        assert ("not random over time" in html.partition("Tests of residuals")[0]) == is_said


def test_a_fault_would_be_found(written):
    with pytest.raises(html5lib.html5parser.ParseError):
        parsed(written.replace("</main>", "", 1))


def test_names_of_places_are_unique_and_links_lead_there(tree):
    places = [e.get("id") for e in tree.iter() if e.get("id")]
    assert len(places) == len(set(places))
    wanted = {e.get("aria-labelledby") for e in tree.iter("section")}
    wanted |= {e.get("href")[1:] for e in tree.iter("a")}
    assert wanted <= set(places)


def test_nothing_comes_from_outside(tree, written):
    given = [e.get(name) for e in tree.iter() for name in ADDRESSES if e.get(name)]
    assert all(address.startswith(("#", "data:")) for address in given)
    assert not re.search(r"url\(|@import", CSS.read_text())
    for drawn in pictures(tree):
        named = [v for e in drawn.iter() for k, v in e.attrib.items() if k.endswith("href")]
        assert all(target.startswith("#") for target in named)


def test_nothing_on_it_can_run(tree):
    for whole in (tree, *pictures(tree)):
        assert not [e for e in whole.iter() if e.tag in ("script", f"{SVG}script", "iframe")]
        assert not [k for e in whole.iter() for k in e.attrib if k.startswith("on")]
    (policy,) = [m.get("content") for m in tree.iter("meta") if m.get("http-equiv")]
    assert policy.startswith("default-src 'none'")


def test_landmarks_headings_and_the_way_past_them(tree):
    assert tree.get("lang") == "en"
    for mark in ("main", "header", "nav", "footer", "title", "h1"):
        assert len(list(tree.iter(mark))) == 1, mark
    first = next(tree.iter("a"))
    assert (first.get("href"), first.get("class")) == ("#main", "skip")
    levels = [HEADINGS.index(e.tag) for e in tree.iter() if e.tag in HEADINGS]
    assert all(deeper - level <= 1 for level, deeper in pairwise(levels))


def test_pictures_and_tables_speak(tree):
    assert all(len(image.get("alt")) > 40 for image in tree.iter("img"))
    assert all(t.find("caption") is not None for t in tree.iter("table"))
    for head in tree.iter("th"):
        assert head.get("scope") in ("row", "col")
    for row in tree.findall(".//tbody/tr"):
        assert (row[0].tag, row[0].get("scope")) == ("th", "row")
    around = [e for e in tree.iter("div") if e.get("class") == "wide"]
    assert all(e.get("tabindex") == "0" and e.get("aria-label") for e in around)


def test_a_name_is_text_wherever_it_stands():
    tree = parsed(KINDS["evil"]().report())
    assert EVIL in {said(h) for h in tree.iter("th")}
    assert any(EVIL in image.get("alt") for image in tree.iter("img"))
    assert EVIL in {said(e) for e in tree.iter("pre")}
    texts = {said(t) for drawn in pictures(tree) for t in drawn.iter(f"{SVG}text")}
    assert EVIL[:20] in {t[:20] for t in texts}


def test_the_answer_comes_first(ordinary):
    titles = [said(h) for h in ordinary.iter("h2")]
    assert titles[0] == "The answer"
    assert len(titles) == len(SECTIONS)
    answer = ordinary.find(".//section")
    lines = [f"{label.capitalize()} {words}" for label, words in result().verdict.items()]
    assert [said(p) for p in answer.findall("p")] == lines
    rows = [[said(c) for c in row] for row in answer.findall(".//tbody/tr")]
    assert rows[0] == ["k1", "1.000", "0.9800 … 1.0200", "1/h"]
    items = [said(i) for i in answer.find("details").iter("li")]
    assert f"Step 3: {result().certificates[0].sentence}" in items
    assert "A sentence worth reading." in items


def test_the_other_chapters_hold_what_they_promise(ordinary):
    chapters = {said(s.find("h2")): said(s) for s in ordinary.iter("section")}
    for title, words in (
        ("Identifiability", ("from the slope of A", "One problem.", "k1 and k2: 0.250")),
        ("Candidates", ("way 2", "0.0246")),
        ("Step by step", ("1 smoothing0.25",)),
        ("To reproduce this", ("Seed of the search: 7", "numpy2.4", "Settings(confidence=0.95)")),
    ):
        assert [w for w in words if w not in chapters[title]] == []


def test_pictures_show_every_measurement_and_the_curves(ordinary):
    """In the fit, the residuals and step 1, of A and B each; the others are of the whole."""
    beginning = re.compile(r"(Over time|\d+ residuals)")
    images = [i for i in ordinary.iter("img") if beginning.match(i.get("alt"))]
    drawn = [b64decode(i.get("src").partition(",")[2]) for i in images]
    for one in map(ElementTree.fromstring, drawn):
        clipped = [g for g in one.iter(f"{SVG}g") if g.get("clip-path")]
        assert max(len(list(g.iter(f"{SVG}use"))) for g in clipped) == 8
    held = [b'style="fill: var(--orange' in one for one in drawn]
    assert held == [False] * 4 + [True] * 2


def test_the_map_and_the_waterfall_are_drawn_and_told(ordinary):
    """With every name of the map, and every candidate."""
    found = {i.get("alt"): i for i in ordinary.iter("img")}
    (waterfall,) = [alt for alt in found if alt.startswith("Objectives of 2 starts")]
    assert "1 of them reached the best" in waterfall
    source = found[MAP.words].get("src").partition(",")[2]
    picture = ElementTree.fromstring(b64decode(source))
    texts = {said(t) for t in picture.iter(f"{SVG}text")}
    names = (*MAP.equations, *MAP.unknowns, *MAP.measured, *MAP.parameters)
    assert texts >= {*names, "slope of A", *(p.sentence for p in MAP.parts)}
    assert len(list(picture.iter(f"{SVG}pattern"))) == 1  # the hatch of what is overdetermined


def test_an_older_result_without_maps_is_read():
    stored = result().to_dict()
    del stored["maps"]
    again = igpe.Result.from_dict(stored)
    assert again.maps == ()
    assert "Which equations give what" not in again.report()


def test_pictures_know_light_and_dark(tree):
    for drawn in pictures(tree):
        style = said(next(drawn.iter(f"{SVG}style")))
        assert "prefers-color-scheme: dark" in style
        plain = [e.get("style", "") for e in drawn.iter()]
        assert not [s for s in plain if re.search(r": #(?:000000|ffffff)", s)]


def luminance(colour):
    """Of sRGB (WCAG 2.2, relative luminance)."""
    channels = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return linear @ [0.2126, 0.7152, 0.0722]


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("ground", ["paper", "shade"])
def test_colours_stand_out(colours, ground):
    """WCAG 2.2 AA: 4.5 for text, 3 for what pictures are made of."""
    for name in colours.keys() - {"paper", "shade", "line"}:
        low, high = sorted(luminance(colours[n]) for n in (name, ground))
        least = 4.5 if name in ("ink", "muted", "link") else 3
        assert (high + 0.05) / (low + 0.05) >= least


def test_what_is_long_is_folded():
    tree = parsed(KINDS["large"]().report())
    folded = {said(d.find("summary")): d for d in tree.iter("details")}
    assert "All measurements (128 rows)" in folded
    assert "<summary>4 more plots</summary>" in gallery(["<figure></figure>"] * 16)
    inside = {t for d in folded.values() for t in d.iter("table")}
    lengths = sorted(len(t.findall(".//tbody/tr")) for t in set(tree.iter("table")) - inside)
    assert lengths[-1] == 20  # the estimates are always open
    assert lengths[-2] <= 15


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_result_gives_the_same_page(kind):
    first = KINDS[kind]().report()
    with mpl.rc_context({"lines.linewidth": 9.0, "svg.fonttype": "path", "axes.grid": True}):
        assert KINDS[kind]().report() == first
    assert igpe.Result.from_json(KINDS[kind]().to_json()).report() == first


@pytest.mark.slow
def test_title_and_date_are_those_given():
    tree = parsed(result().report(title="Run <12> & 13", date="2026-11-21"))
    assert said(next(tree.iter("title"))) == said(next(tree.iter("h1"))) == "Run <12> & 13"
    assert said(tree.find(".//header/p")) == "2026-11-21"
    assert parsed(result().report(date="")).find(".//header/p") is None
    before, told = date.today(), said(parsed(result().report()).find(".//header/p"))
    assert before <= date.fromisoformat(told) <= date.today()


def test_it_is_written_no_figure_is_left_open_and_no_style_changed(tmp_path):
    before, figures, path = dict(mpl.rcParams), plt.get_fignums(), tmp_path / "report.html"
    assert result().report(path) == path.read_text(encoding="utf-8")
    assert plt.get_fignums() == figures
    assert dict(mpl.rcParams) == before


def test_it_is_not_written_under_the_ending_of_another_kind(tmp_path):
    with pytest.raises(DataError, match=r"report.pdf' does not end in .html"):
        result().report(tmp_path / "report.pdf")
    assert not list(tmp_path.iterdir())


def test_standard_deviations_that_are_known_scale_the_residuals():
    known = result(variance=1.0)
    known = replace(known, points=known.points.assign(sigma=0.005))
    alt = [i.get("alt") for i in parsed(known.report()).iter("img")][2]
    standard = known.points["residual"].iloc[:8] / 0.005
    assert f"number outside ±1.96: {np.sum(np.abs(standard) > 1.96)}." in alt
    assert np.sum(np.abs(standard) > 1.96) > 0


def test_model_and_data_are_named():
    tree, lost = ["=", ["d", EVIL], ["-", "k1"]], ["no operation", 1.0]
    made = result(equations=(tree, lost, {}, ["f"]), sources={EVIL: "runs.csv, SHA-256 0a1b"})
    words = {"title": "T", "author": "A <b>", "date": "2026"}
    page = made.report(**words)
    assert "<p>A &lt;b&gt;, 2026</p>" in page
    assert "<script>" not in page
    said = "".join(parsed(page).find(".//section[2]").itertext())
    assert "runs.csv, SHA-256 0a1b" in said
    assert said.count("could not be read") == 3
    assert type(made).from_json(made.to_json()).report(**words) == page


def test_tables_for_latex_and_excel(tmp_path):
    made = result(("k_1 & more", "=k2"))
    rows = made.to_latex().splitlines()
    assert rows[0] == r"\begin{tabular}{llll}"
    assert rows[4].startswith(r"k\_1 \& more & 1.000 & 0.9800 \dots{} 1.0200 & 1/h")
    for _ in range(2):  # its own file is replaced, another one is not
        made.to_excel(tmp_path / "r.xlsx")
    pd.DataFrame({"a": [1]}).to_excel(tmp_path / "other.xlsx")
    with pytest.raises(DataError, match="already exists"):
        made.to_excel(tmp_path / "other.xlsx")
    sheets = pd.read_excel(tmp_path / "r.xlsx", sheet_name=None)
    assert list(sheets) == ["estimates", "measurements", "fit", "correlation"]
    assert sheets["estimates"]["estimate"].tolist() == [1.0, 2.0]
    assert sheets["estimates"]["name"].tolist() == ["k_1 & more", "'=k2"]
    assert len(sheets["measurements"]) == made.measurements


def test_further_sections_are_functions():
    text = page(result(), sections=(*SECTIONS, lambda r: Section("More", f"<p>{r.seed}</p>")))
    assert said(list(parsed(text).iter("section"))[-1]).split() == ["More", "7"]
    without = page(result(), sections=(*SECTIONS, lambda _: Section("Empty", "")))
    assert "Empty" not in without


def test_the_conditions_of_experiments_are_on_the_page():
    """Doses, inputs and start values: what was done to the system."""

    model = ode(
        {"A": lambda m, t: m.u[t] - m.k * m.T / 300 * m.A[t]},
        inputs=("u",),
        T=(None, None),
        k=(0.01, 5),
    )

    times = np.linspace(0.5, 6, 6)
    doses = [igpe.Event(at=x, add={"A": 0.5}) for x in (1.0, 3.0)]
    feed = {"u": igpe.step_input([0, 2], [0.0, 1.0]), "T": 320.0}
    run = igpe.Experiment(
        pd.DataFrame({"time": times, "A": np.exp(-times / 2)}),
        start={"A": igpe.Unknown(0, 2)},
        inputs=feed,
        events=doses,
        start_time=0.0,
    )
    made = igpe.estimate(igpe.Problem(model, parameters=["k"], experiments=run), certify=False)
    ((_, start, inputs, events),) = igpe.Result.from_json(made.to_json()).conditions
    assert start == "A = unknown in [0, 2]"
    assert inputs == "u = steps through 2 values (0 at 0, 1 at 2), T = 320"
    assert events == "A + 0.5 (at 1, 3)"
    shown = said(parsed(made.report()))
    assert all(words in shown for words in ("start values", start, inputs, events))
    assert "Conditions" not in said(parsed(replace(made, conditions=(("1",),)).report()))
