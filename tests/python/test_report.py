"""The report page as HTML: well-formed, self-contained, labelled, readable by its colours."""

import html.parser
import itertools
import math
import re
import xml.etree.ElementTree as ElementTree

import pytest

VOID = {"meta", "link", "br"}


@pytest.fixture(scope="module")
def page(program, tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "page.html"
    program("report_sample", path)
    return path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def root(page):
    """The page parsed as XML, which is stricter than HTML."""
    return ElementTree.fromstring(page)


def test_an_html_parser_sees_balanced_elements(page):
    class Parser(html.parser.HTMLParser):
        stack = []

        def handle_starttag(self, tag, attributes):
            if tag not in VOID:
                self.stack.append(tag)

        def handle_startendtag(self, tag, attributes):
            pass

        def handle_endtag(self, tag):
            assert self.stack.pop() == tag

    parser = Parser(convert_charrefs=False)
    parser.feed(page)
    parser.close()
    assert parser.stack == []


def test_nothing_comes_from_elsewhere(page, root):
    assert "://" not in page and "@import" not in page and not re.search(r"url\(", page)
    tags = {element.tag for element in root.iter()}
    assert tags.isdisjoint({"iframe", "object", "embed", "img", "base", "form"})
    policy = next(element for element in root.iter("meta") if element.get("http-equiv") == "Content-Security-Policy")
    assert policy.get("content").startswith("default-src 'none'; ")
    for element in root.iter():
        assert not any(name.startswith("on") for name in element.keys())
        assert "src" not in element.keys()
        if "href" in element.keys():
            assert element.get("href").startswith("#") or element.get("href") == "data:,"


def test_links_and_labels_have_their_targets(root):
    identifiers = [element.get("id") for element in root.iter() if element.get("id")]
    assert len(set(identifiers)) == len(identifiers)
    references = [element.get("href")[1:] for element in root.iter("a")]
    references += [element.get("aria-labelledby") for element in root.iter() if element.get("aria-labelledby")]
    assert references and set(references) <= set(identifiers)


def test_headings_do_not_skip_a_level(root):
    levels = [int(element.tag[1]) for element in root.iter() if re.fullmatch("h[1-6]", element.tag)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))


def test_pictures_are_in_words(root):
    pictures = [element for element in root.iter("svg") if element.get("aria-hidden") != "true"]
    assert len(pictures) >= 2
    assert all(picture.get("role") == "img" and len(picture.get("aria-label")) > 10 for picture in pictures)
    chart = next(picture for picture in pictures if "chart" in picture.get("class"))
    assert "mixer 4: from " in chart.get("aria-label")
    scrolled = [element for element in root.iter() if element.get("tabindex") == "0"]
    assert scrolled and all(element.get("aria-label") for element in scrolled)


def test_tables_name_their_rows_and_columns(root):
    for table in root.iter("table"):
        assert table.findall("./thead/tr/th[@scope='col']")
        rows = table.findall("./tbody/tr")
        assert rows and all(row.find("./th").get("scope") == "row" for row in rows)


def text_of(element):
    return "".join(element.itertext())


def test_the_figures_are_there(root):
    (table,) = [table for table in root.iter("table") if table.get("class") == "data"]
    rows = [[text_of(cell) for cell in row] for row in table.findall("./tbody/tr")]
    assert rows[2] == ["interleaved heads", "17,026", "98.1 ± 0.6", "66", "24.0", "19.3 M"]
    assert table.findall("./tbody/tr")[2].get("class") == "emphasis"
    values = [text_of(element) for element in root.iter("span") if element.get("class") == "value"]
    assert values == ["0.919 ± 0.010", "0.946 ± 0.004", "1.000", "0.944 ± 0.024", "0.981 ± 0.006"]
    cells = [cell for table in root.iter("table") if table.get("class") == "heat" for cell in table.iter("td") if cell.get("style")]
    assert len(cells) == 2 * 4 * 16 + 3 * 4
    assert any(cell.get("title").startswith("source head 0, pseudo-head 0.0: ") for cell in cells)


def test_the_text_is_readable_in_order(root):
    assert "".join(element.text for element in root.iter("pre")).startswith("def f(x):\n\treturn x < 3 & x\u2401\ufffd\n")


def test_bars_lie_where_their_numbers_say(root):
    """Positions in percent are a straight line of the values."""
    rows = [row for row in root.iter("li") if row.find("./span[@class='value']") is not None]
    values = [float(text_of(row.find("./span[@class='value']")).split()[0]) for row in rows]
    lefts = [float(re.search(r"left:([\d.]+)%", row.find(".//i[@class='point']").get("style"))[1]) for row in rows]
    slope = (lefts[2] - lefts[0]) / (values[2] - values[0])
    for value, left in zip(values, lefts):
        assert left == pytest.approx(lefts[0] + slope * (value - values[0]), abs=0.02)


def palettes(page):
    style = re.search("<style>(.*?)</style>", page, re.S)[1]
    light, dark = re.findall(r":root \{(.*?)\}", style, re.S)[:2]
    triples = lambda css: {name: tuple(map(int, values.split())) for name, values in re.findall(r"--([\w]+): (\d+ \d+ \d+);", css)}
    return [triples(light), triples(dark)]


def luminance(colour):
    linear = [c / 255 / 12.92 if c / 255 <= 0.04045 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in colour]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a, b):
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


FAMILIES = ["causal", "sliding", "global", "strided", "every", "chunked", "learned", "dynamic"]

# What eyes without red, green or blue cones make of linear light (Machado, Oliveira and Fernandes 2009, severity 1).
EYES = {
    "all cones": [(1, 0, 0), (0, 1, 0), (0, 0, 1)],
    "no red": [(0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)],
    "no green": [(0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)],
    "no blue": [(1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)],
}


def seen_as(colour, eyes):
    """CIE L*a*b* of a colour, as those eyes see it."""
    linear = [c / 255 / 12.92 if c / 255 <= 0.04045 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in colour]
    red, green, blue = (min(1, max(0, sum(w * c for w, c in zip(row, linear)))) for row in eyes)
    x = (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.95047
    y = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    z = (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.08883
    f = lambda t: t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116
    return 116 * f(y) - 16, 500 * (f(x) - f(y)), 200 * (f(y) - f(z))


def test_families_are_told_apart_by_colour_blind_readers(page):
    """A difference of 2.3 (CIE 1976) is just noticeable; 15 is plain in a small swatch. Families are named in words, too."""
    for palette in palettes(page):
        for name, eyes in EYES.items():
            for a, b in itertools.combinations(FAMILIES, 2):
                difference = math.dist(seen_as(palette[a], eyes), seen_as(palette[b], eyes))
                assert difference >= 15, (a, b, name)


def test_text_has_the_contrast_that_WCAG_asks_for(page):
    for palette in palettes(page):
        for ground in ["paper", "card"]:
            for name in ["ink", "soft", "link"]:
                assert contrast(palette[name], palette[ground]) >= 4.5, (name, ground)
            for name in FAMILIES:  # pictures, never text
                assert contrast(palette[name], palette[ground]) >= 3, (name, ground)
        for shade in ["plus", "minus"]:  # numbers on the strongest cell of a heat map
            assert contrast(palette["ink"], palette[shade]) >= 4.5, shade
        for line in range(8):
            assert contrast(palette[f"c{line}"], palette["paper"]) >= 3, line


def test_causal_sliding_and_global_are_green_blue_and_orange(page):
    for palette in palettes(page):
        red, green, blue = palette["causal"]
        assert green > red and green > blue
        red, green, blue = palette["sliding"]
        assert blue > green > red
        red, green, blue = palette["global"]
        assert red > green > blue


def test_lines_differ_by_colour_or_dash(page):
    for palette in palettes(page):
        dash = lambda line: re.findall(rf"\.d{line} \{{ stroke-dasharray: ([\d ]+); \}}", page)
        looks = [(palette[f"c{line}"], tuple(dash(line))) for line in range(8)]
        assert len(set(looks)) == 8
        # Colour alone may fail some readers: lines of one dash are few and differ in lightness or in all of hue.
        for (first, dash_a), (second, dash_b) in itertools.combinations(looks, 2):
            assert dash_a != dash_b or max(abs(a - b) for a, b in zip(first, second)) > 60
