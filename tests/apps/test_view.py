"""The viewer in a browser: what a page shows equals what the library computes, and everyone can use it.

IHA_PICTURES=1 rewrites the screenshots in docs/pictures.
"""

import json
import math
import os
import pathlib
import sys

import pytest
from browser import Pages, browser_or_skip
from safetensors.torch import load_file

SOURCE = pathlib.Path(__file__).resolve().parents[2]
# Float16 keeps 11 bits: half a unit in the last place, of numbers above 6e-8.
HALF = 2.0**-11
TEXT = "def open(path):\n    return io.open(path)  # it is read as bytes\n"


@pytest.fixture(scope="module")
def browser():
    with browser_or_skip() as browser:
        yield browser


@pytest.fixture
def pages(browser):
    pages = Pages(browser)
    yield pages
    pages.close()


@pytest.fixture(scope="module")
def operator(binary):
    library = binary.parents[1] / "lib" / "libiha_torch.so"
    os.environ["IHA_LIBRARY"] = str(library)
    sys.path.insert(0, str(SOURCE / "python"))
    return pytest.importorskip("iha")


def train(iha, text, folder, *options):
    iha(
        *("train", "lm", "--text", text, "--d-model", 16, "--layers", 2, "--context", 64, "--batch", 4),
        *("--max-bytes", 60000, "--max-validation-bytes", 2000, "--sample", 5, "--steps", 30, "--rate", 0.02),
        *("--warmup", 3, "--threads", 1, "--output", folder, *options),
    )
    return folder


@pytest.fixture(scope="module")
def plain_run(iha, text, tmp_path_factory):
    patterns = "causal_sliding:4,causal_strided:4,causal,causal_every:3+first:2"
    return train(iha, text, tmp_path_factory.mktemp("view") / "plain", "--patterns", patterns)


@pytest.fixture(scope="module")
def pseudo_run(iha, text, tmp_path_factory):
    folder = tmp_path_factory.mktemp("view") / "pseudo"
    return train(iha, text, folder, "--mixer", "interleaved", "--patterns", "causal", "--pseudo-heads", 2, "--heads", 2)


@pytest.fixture(scope="module")
def sample(binary, tmp_path_factory):
    """A page of made-up heads of every family, learned and dynamic ones among them."""
    import subprocess

    path = tmp_path_factory.mktemp("view") / "sample.html"
    subprocess.run([binary.parent / "report_sample", path], check=True)
    return path


def weights_by_operator(operator, folder, tokens):
    """Each layer's weights [H, N, P, N, P], by the model written out in torch around the Python operator."""
    import torch
    from torch.nn.functional import gelu, rms_norm

    tensors = load_file(folder / "model.safetensors")
    config = json.loads((folder / "model.json").read_text())
    width = config["d_model"]
    x = tensors["embedding.weight"][tokens][None]
    result = []
    for number, layer in enumerate(config["layers"]):
        own = {name.removeprefix(f"blocks.{number}."): value for name, value in tensors.items() if name.startswith(f"blocks.{number}.")}
        normed = rms_norm(x, (width,), own["norm1.weight"], 1e-5)
        split = lambda name: (normed @ own[f"attention.{name}.weight"].T).unflatten(-1, (-1, layer["head_dim"])).transpose(1, 2)
        query, key, value = map(split, ("q_proj", "k_proj", "v_proj"))
        options = {"patterns": layer["patterns"], "rope": layer["rope"]}
        options |= {name: own[f"attention.{name}"] for name in ("alpha_q", "alpha_k") if f"attention.{name}" in own}
        result.append(operator.attention_weights(query, key, torch.arange(len(tokens)), **options)[0])
        options |= {name: own[f"attention.{name}"] for name in ("alpha_v", "collapse") if f"attention.{name}" in own}
        x = x + operator.attention(query, key, value, **options).transpose(1, 2).flatten(2) @ own["attention.out_proj.weight"].T
        normed = rms_norm(x, (width,), own["norm2.weight"], 1e-5)
        x = x + gelu(normed @ own["feed_forward.up.weight"].T) @ own["feed_forward.down.weight"].T
    return result


def by_token(weights):
    return weights.sum(-1).mean(2)


# --- reading the page ---


def step_to(page, layer, head):
    if page.locator(".layers button").count() > 1 and page.locator(".layers").first.is_visible():
        page.locator(".layers button").nth(layer).click()
    page.locator(".strip button").nth(head).click()


def select(page, query):
    """Moves the slider as a person's keys would, in one go."""
    page.locator(".query input").first.evaluate("(slider, query) => { slider.value = query; slider.dispatchEvent(new Event('input')); }", query)


def heaviest(page):
    """{key: weight} and the rest, as the list says."""
    rows = page.locator(".heaviest").first.locator("li").evaluate_all("rows => rows.map(row => [row.dataset.key, row.dataset.weight, row.dataset.rest, row.querySelector('.weight').textContent])")
    for _, weight, rest, shown in rows:
        # The text has three digits (two below 0.0001) of the number beside it.
        assert float(shown.replace("\u2212", "-")) == pytest.approx(float(weight or rest), rel=0.051 if "e" in shown else 5.1e-3)
    listed = {int(key): float(weight) for key, weight, _, _ in rows if key is not None}
    return listed, sum(float(rest) for _, _, rest, _ in rows if rest is not None)


def alphas(page, selector):
    """The opacity 0..255 of each cell of a square's picture, as rows."""
    return page.locator(selector).first.evaluate(
        """shown => { const canvas = new OffscreenCanvas(shown.width, shown.height), context = canvas.getContext('2d');
        context.drawImage(shown, 0, 0);
        const data = context.getImageData(0, 0, canvas.width, canvas.height).data;
        return Array.from({length: canvas.height}, (_, i) => Array.from({length: canvas.width}, (_, j) => data[4 * (i * canvas.width + j) + 3])); }"""
    )


SEEN, GIVEN = ".square:nth-child(1) canvas", ".square:nth-child(2) canvas"


# --- what it shows ---


def test_every_weight_of_a_short_text_equals_the_operator(iha, pages, operator, plain_run, tmp_path):
    iha("view", plain_run, "--text", TEXT, "--tokens", 64, "--html", tmp_path / "view.html")
    tokens = list(TEXT.encode())[:64]
    expected = weights_by_operator(operator, plain_run, tokens)
    page = pages.open(tmp_path / "view.html")
    assert page.locator(".layers button").all_inner_texts() == ["layer 0", "layer 1"]
    for layer, weights in enumerate(expected):
        for head, matrix in enumerate(by_token(weights)):
            step_to(page, layer, head)
            assert f"layer {layer}, head {head}" in page.locator(".panel .name").inner_text().lower()
            for query in (0, 1, 17, len(tokens) - 1):
                select(page, query)
                listed, rest = heaviest(page)
                row = matrix[query]
                # Both sides are float32 from the same inputs, in different cuts: 16 channels, softmax, 64 keys.
                assert listed == pytest.approx({key: row[key].item() for key in listed}, rel=1e-4, abs=1e-6)
                assert rest == pytest.approx(row.sum().item() - sum(row[key].item() for key in listed), abs=1e-5)
                order = row.sort(descending=True).values
                assert min(listed.values()) == pytest.approx(order[len(listed) - 1].item(), rel=1e-4, abs=1e-6)
            # The picture: nothing where nothing is visible, strongest where the weight is largest.
            picture = alphas(page, GIVEN)
            strongest = max(max(row) for row in picture)
            at = [(i, j) for i, row in enumerate(picture) for j, cell in enumerate(row) if cell == strongest]
            assert strongest == 255 and matrix.flatten().max().item() == pytest.approx(max(matrix[i][j].item() for i, j in at), rel=1e-3)
            assert all(picture[i][j] == 0 for i in range(64) for j in range(i + 1, 64))


def test_hovering_a_cell_reads_its_weight(iha, pages, operator, plain_run, tmp_path):
    iha("view", plain_run, "--text", TEXT, "--tokens", 64, "--html", tmp_path / "view.html")
    matrix = by_token(weights_by_operator(operator, plain_run, list(TEXT.encode())[:64])[0])[2]
    page = pages.open(tmp_path / "view.html")
    step_to(page, 0, 2)
    page.locator(GIVEN).first.scroll_into_view_if_needed()
    box = page.locator(GIVEN).first.bounding_box()
    for query, key in ((40, 7), (63, 63), (5, 20)):
        page.mouse.move(box["x"] + (key + 0.5) / 64 * box["width"], box["y"] + (query + 0.5) / 64 * box["height"])
        page.wait_for_timeout(50)
        cell = page.locator(".reading .cell").first.inner_text()
        assert cell.startswith(f"Query {query} → key {key} ")
        if key > query:
            assert cell.endswith("hidden.")
        else:
            assert float(cell.rsplit(" ", 1)[1].rstrip(".").replace("\u2212", "-")) == pytest.approx(matrix[query][key].item(), rel=5e-2 if "e" in cell else 1e-3)


def test_long_texts_are_summarised_in_blocks_and_heaviest_keys(iha, pages, operator, plain_run, tmp_path):
    text = (TEXT * 8)[:300]
    iha("view", plain_run, "--text", text, "--tokens", 300, "--layers", "1,0", "--html", tmp_path / "view.html")
    expected = weights_by_operator(operator, plain_run, list(text.encode()))
    page = pages.open(tmp_path / "view.html")
    assert page.locator(".layers button").all_inner_texts() == ["layer 1", "layer 0"]
    for place, layer in enumerate((1, 0)):
        matrix = by_token(expected[layer])[2]
        step_to(page, place, 2)
        for query in (0, 150, 299):
            select(page, query)
            listed, rest = heaviest(page)
            order = matrix[query].sort(descending=True)
            best = order.values[: len(listed)].tolist()
            assert len(listed) == min(8, query + 1)
            assert list(listed.values()) == pytest.approx(best, rel=2 * HALF)
            assert [matrix[query][key].item() for key in listed] == pytest.approx(best, rel=2 * HALF)
            assert rest == pytest.approx(order.values[len(listed) :].sum().item(), rel=2 * HALF, abs=1e-5)
        # 300 tokens are 60 blocks of 5: the block of queries 150-154 and keys 145-149.
        select(page, 152)
        page.locator(GIVEN).first.focus()
        for _ in range(5):
            page.keyboard.press("ArrowLeft")
        cell = page.locator(".reading .cell").first.inner_text()
        assert cell.startswith("Queries 150–154 give keys 145–149 ")
        mass = matrix[150:155, 145:150].sum(-1).mean().item()
        assert float(cell.split("149 ")[1].split(" of")[0]) == pytest.approx(mass, rel=2 * HALF + 5e-4)
        assert len(alphas(page, GIVEN)) == 60


def test_pseudo_heads_one_by_one(iha, pages, operator, pseudo_run, tmp_path):
    iha("view", pseudo_run, "--text", TEXT, "--tokens", 60, "--html", tmp_path / "view.html")
    weights = weights_by_operator(operator, pseudo_run, list(TEXT.encode())[:60])[1][1]
    page = pages.open(tmp_path / "view.html")
    step_to(page, 1, 1)
    assert page.locator(".parts button").count() == 4
    for p in range(2):
        for r in range(2):
            page.get_by_label(f"pseudo-query {p} reads pseudo-key {r}").click()
            select(page, 59)
            listed, rest = heaviest(page)
            row = weights[59, p, :, r]
            assert listed == pytest.approx({key: row[key].item() for key in listed}, rel=1e-4, abs=1e-6)
            assert sum(listed.values()) + rest == pytest.approx(row.sum().item(), abs=1e-5)
            # In flat order a pseudo-query sees its own token's pseudo-keys up to its own number.
            diagonal = [row[i] for i, row in enumerate(alphas(page, SEEN))]
            assert all((cell > 0) == (r <= p) for cell in diagonal)
    page.get_by_role("button", name="All together").click()
    select(page, 59)
    row = by_token(weights[None])[0][59]
    assert heaviest(page)[0] == pytest.approx({key: row[key].item() for key in heaviest(page)[0]}, rel=1e-4, abs=1e-6)
    maps = page.locator(".mixed table")
    tensors = load_file(pseudo_run / "model.safetensors")
    assert maps.count() == 4
    for place, name in enumerate(("alpha_q", "alpha_k", "alpha_v", "collapse")):
        shown = [float(cell) for cell in maps.nth(place).locator("tbody td").all_inner_texts()]
        assert shown == pytest.approx(tensors[f"blocks.1.attention.{name}"].flatten().tolist(), abs=0.00501)


def visible(pattern, i, j):
    """The patterns of these tests, written anew."""
    name, _, first = pattern.partition("+first:")
    base, *numbers = name.split(":")
    numbers = [int(number) for number in numbers]
    causal = base.startswith("causal")
    if first and j < int(first) and (not causal or j <= i):
        return True
    if causal and j > i:
        return False
    rule = base.removeprefix("causal_")
    return {
        "causal": lambda: True,
        "global": lambda: True,
        "sliding": lambda: abs(i - j) <= numbers[0],
        "strided": lambda: (i - j) % numbers[0] == 0,
        "every": lambda: j % numbers[0] == 0,
        "chunked": lambda: i // numbers[0] == j // numbers[0],
    }[rule]()


PATTERNS = ["causal", "sliding:5", "global", "strided:7", "causal_every:4+first:2", "chunked:16", "causal_strided:3"]


@pytest.mark.parametrize("tokens", [1, 37, 256, 257, 1000])
def test_patterns_alone_show_what_each_head_may_see(iha, pages, tokens, tmp_path):
    shown = iha("inspect", ",".join(PATTERNS), "--tokens", tokens, "--html", tmp_path / "page.html", "--json")
    costs = json.loads(shown.stdout)
    page = pages.open(tmp_path / "page.html")
    assert page.locator(".strip button").count() == len(PATTERNS)
    assert page.locator(".strip small").all_inner_texts() == ["causal", "sliding", "global", "strided", "every", "chunked", "strided"]
    block = math.ceil(tokens / 64) if tokens > 256 else 1
    for head, pattern in enumerate(PATTERNS):
        step_to(page, 0, head)
        picture = alphas(page, SEEN)
        counts = [[0] * len(picture) for _ in picture]
        for i in range(tokens):
            for j in range(tokens):
                counts[i // block][j // block] += visible(pattern, i, j)
        assert sum(map(sum, counts)) == costs["heads"][head]["pairs"]
        for i, row in enumerate(picture):
            for j, cell in enumerate(row):
                size = min(block, tokens - i * block) * min(block, tokens - j * block)
                share = counts[i][j] / size
                assert cell == pytest.approx(255 * (0.25 + 0.75 * share) if share else 0, abs=0.6)
        query = tokens // 2
        select(page, query)
        seen = sum(visible(pattern, query, j) for j in range(tokens))
        words = page.locator(".reading .note").first.inner_text()
        assert words.startswith(f"may see {seen:,} of {tokens:,} keys" if seen else "may see no key")


def test_the_cost_panel_equals_the_library(iha, pages, tmp_path):
    shown = iha("inspect", "causal*2,sliding:20,causal_every:8", "--tokens", 512, "--head-dim", 32, "--html", tmp_path / "page.html", "--json")
    costs = json.loads(shown.stdout)
    page = pages.open(tmp_path / "page.html")
    step_to(page, 0, 2)

    def values(table, field):
        return [float(value) for value in page.locator(".cost").nth(table).locator(f"tr[data-field={field}] td[data-value]").evaluate_all("cells => cells.map(cell => cell.dataset.value)")]

    dense = 512 * 512
    assert values(0, "pairs") == [costs["heads"][2]["pairs"], 512 * 513 / 2, dense]
    assert values(1, "pairs") == [costs["pairs"], costs["all_causal_pairs"], costs["all_global_pairs"]]
    assert values(0, "flops") == [costs["heads"][2]["flops"], 4 * 32 * 512 * 513 / 2, 4 * 32 * dense]
    assert values(1, "weight_bytes") == [4 * costs["pairs"], 4 * costs["all_causal_pairs"], 4 * 4 * dense]
    assert values(0, "cache_bytes") == [2 * 21 * 32 * 4, 2 * 512 * 32 * 4, 2 * 512 * 32 * 4]
    assert values(1, "cache_bytes")[0] == 2 * (512 + 512 + 21 + 64) * 32 * 4
    words = page.locator(".cost").nth(0).locator("tr[data-field=pairs] td").all_inner_texts()
    assert words[0] == f"{costs['heads'][2]['pairs']:,}" and words[3].endswith(" %")
    assert float(words[3].split()[0]) == pytest.approx(100 * costs["heads"][2]["share_of_dense"], rel=5e-3)
    assert page.locator("tr[data-field=seconds]").count() == 0


def test_measured_times_stand_beside_the_costs(iha, pages, plain_run, tmp_path):
    iha("view", plain_run, "--text", TEXT, "--time", "--html", tmp_path / "view.html")
    page = pages.open(tmp_path / "view.html")
    cells = page.locator(".cost").nth(1).locator("tr[data-field=seconds] td[data-value]")
    assert cells.count() == 3
    assert all(0 < float(cell.get_attribute("data-value")) < 60 for cell in cells.all())
    assert page.locator(".cost").nth(0).locator("tr[data-field=seconds]").count() == 0


def test_a_tagger_is_viewed_on_a_grid(iha, pages, tiny_compose, tmp_path):
    iha("train", "compose", *tiny_compose, "--variant", "interleaved", "--output", tmp_path / "run")
    iha("view", tmp_path / "run", "--text", "01001 11100 00110 10101 01010", "--html", tmp_path / "view.html")
    page = pages.open(tmp_path / "view.html")
    assert page.locator(".text span").count() == 25
    assert "4,4=0" in page.locator(".reading .who").first.inner_text()
    assert page.locator(".parts button").count() == 4
    iha("view", tmp_path / "run", "--html", tmp_path / "default.html")
    assert pages.open(tmp_path / "default.html").locator(".text span").count() == 25
    assert "`2`" in iha("view", tmp_path / "run", "--text", "0120", "--html", tmp_path / "x.html", status=1).stderr
    assert "a square" in iha("view", tmp_path / "run", "--text", "010", "--html", tmp_path / "x.html", status=1).stderr


def test_the_page_lies_in_the_run_unless_told_otherwise(iha, plain_run):
    assert str(plain_run / "view.html") in iha("view", plain_run).stdout
    assert (plain_run / "view.html").exists()


def test_the_report_of_a_run_has_the_viewer(pages, plain_run):
    page = pages.open(plain_run / "report.html")
    assert page.locator(".viewer").count() == 1
    shown = json.loads((plain_run / "summary.json").read_text())["shown"]
    assert page.locator(".text span").count() == len(shown)
    assert page.locator(".heaviest li").count() > 1


def test_learned_heads_show_their_gates(pages, sample):
    page = pages.open(sample)
    step_to(page, 0, 7)
    gates = page.locator(".gates li")
    assert [float(value) for value in gates.evaluate_all("rows => rows.map(row => row.dataset.gate)")] == [0.125, 0.625, 0.25]
    assert gates.locator("code").all_inner_texts() == ["causal", "causal_sliding:3", "causal_strided:8"]
    assert page.locator(".words").first.inner_text().startswith("learned (brown)")
    picture = alphas(page, SEEN)
    for i, j in ((40, 38), (40, 32), (40, 20), (40, 40)):
        openness = 0.125 + 0.625 * (i - j <= 3) + 0.25 * ((i - j) % 8 == 0)
        assert picture[i][j] == pytest.approx(255 * (0.25 + 0.75 * openness), abs=0.6)


def test_dynamic_heads_show_the_blocks_they_chose(pages, sample):
    page = pages.open(sample)
    step_to(page, 0, 8)
    select(page, 33)  # of block 4; blocks of 8 tokens
    assert page.locator(".choices li").all_inner_texts() == [
        "its own block 4 (keys 32–33)", "block 0 (keys 0–7, weight 0.75)", "block 2 (keys 16–23, weight 0.5)",
    ]
    row = alphas(page, SEEN)[33]
    assert [j for j, cell in enumerate(row) if cell > 0] == [*range(8), *range(16, 24), 32, 33]
    # In the long text, in blocks: 600 tokens, cells of 10, blocks of 50; the first cells of queries 200-209.
    page.locator(".viewer").nth(1).locator(".strip button").nth(4).click()
    long = page.locator(".viewer").nth(1).locator(SEEN)
    cells = long.evaluate("canvas => Array.from(canvas.getContext('2d').getImageData(0, 20, canvas.width, 1).data).filter((_, at) => at % 4 === 3)")
    shares = [0.75] * 5 + [0] * 5 + [0.5] * 5 + [0] * 5 + [0.55] + [0] * 39
    assert cells == [pytest.approx(255 * (0.25 + 0.75 * share) if share else 0, abs=0.6) for share in shares]


def test_bertviz_takes_the_export(iha, operator, pseudo_run, tmp_path):
    """What head_view and model_view ask: a list of layers, each [1, heads, N, N], and N tokens."""
    import torch

    iha("view", pseudo_run, "--text", TEXT[:40], "--bertviz", tmp_path / "view.json")
    data = json.loads((tmp_path / "view.json").read_text())
    attention, tokens = [torch.tensor(layer) for layer in data["attention"]], data["tokens"]
    expected = weights_by_operator(operator, pseudo_run, list(TEXT.encode())[:40])
    assert tokens == list(TEXT[:40]) and len(attention) == 2
    for layer, weights in zip(attention, expected):
        assert layer.shape == (1, 2, 40, 40)
        torch.testing.assert_close(layer[0], by_token(weights), rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(layer.sum(-1), torch.ones(1, 2, 40), rtol=0, atol=1e-5)
    refused = iha("view", pseudo_run, "--text", TEXT * 9, "--tokens", 500, "--bertviz", tmp_path / "x.json", status=1)
    assert "at most 256" in refused.stderr and not (tmp_path / "x.json").exists()


def test_what_cannot_be_viewed_is_told(iha, plain_run, tmp_path):
    iha("view", status=2)
    iha("view", tmp_path / "none", "--html", tmp_path / "x.html", status=2)
    iha("view", plain_run, "--text", "a", "--file", plain_run / "config.json", "--html", tmp_path / "x.html", status=2)
    assert "model.json" in iha("view", tmp_path, "--html", tmp_path / "x.html", status=1).stderr
    assert "layer 2" in iha("view", plain_run, "--layers", 2, "--html", tmp_path / "x.html", status=1).stderr
    (tmp_path / "model.json").write_text("{}")
    assert "neither" in iha("view", tmp_path, "--html", tmp_path / "x.html", status=1).stderr
    assert not (tmp_path / "x.html").exists()


# --- how it is used ---


def chosen(page):
    return page.locator(".strip button[aria-selected=true]").first.inner_text().split("\n")[0]


def test_keys_step_through_heads_layers_and_queries(pages, sample):
    page = pages.open(sample)
    page.locator(".strip").first.scroll_into_view_if_needed()
    page.keyboard.press("ArrowRight")  # nothing has the focus yet
    assert chosen(page) == "head 1"
    assert page.evaluate("document.activeElement.textContent").startswith("head 1")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    assert chosen(page) == "head 0"
    page.keyboard.press("End")
    assert chosen(page) == "head 8"
    page.keyboard.press("ArrowDown")
    assert page.locator(".layers button[aria-pressed=true]").first.inner_text() == "layer 1"
    assert chosen(page) == "head 1"  # it has two
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Home")
    assert chosen(page) == "head 0" and page.locator(".layers button[aria-pressed=true]").first.inner_text() == "layer 0"
    square = page.locator(SEEN).first
    square.focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowLeft")
    assert square.get_attribute("aria-valuenow") == "2"
    assert page.locator(".reading .cell").first.inner_text().startswith("Query 2 → key 1 ")
    assert "Query 2" in square.get_attribute("aria-valuetext")
    page.locator(".query input").first.focus()
    page.keyboard.press("ArrowRight")
    assert page.locator(".reading .who").first.inner_text().startswith("Query 3 ")


def test_everything_is_reached_by_tab_and_shows_its_focus(pages, sample):
    page = pages.open(sample)
    names = []
    for _ in range(14):
        page.keyboard.press("Tab")
        names.append(page.evaluate(
            """() => { const it = document.activeElement, ring = it.closest('.frame') || it, style = getComputedStyle(ring);
            return [it.closest('[role=tablist],.layers,.frame,.query,.panel > header,.scroll,.parts')?.className ?? it.tagName, style.outlineStyle, parseFloat(style.outlineWidth)]; }"""))
    places = [name for name, _, _ in names]
    for place in ("layers", "strip", "frame", "query", "scroll"):
        assert place in places, places
    assert all(style != "none" and width >= 2 for place, style, width in names if place in ("layers", "strip", "frame", "query", "scroll"))


def test_clicks_and_taps(pages, sample):
    page = pages.open(sample, width=390, height=800, touch=True)
    page.get_by_role("button", name="Next head").first.tap()
    assert chosen(page) == "head 1"
    page.get_by_role("tab").nth(3).tap()
    assert chosen(page) == "head 3"
    square = page.locator(GIVEN).first
    square.scroll_into_view_if_needed()
    box = square.bounding_box()
    page.touchscreen.tap(box["x"] + 10.5 / 41 * box["width"], box["y"] + 30.5 / 41 * box["height"])
    page.wait_for_timeout(50)
    assert page.locator(".reading .cell").first.inner_text().startswith("Query 30 → key 10 ")
    page.locator(".text").first.locator("span").nth(20).tap()
    assert page.locator(".reading .who").first.inner_text().startswith("Query 20 ")


def test_both_colour_schemes_and_a_change_between_them(pages, sample):
    page = pages.open(sample)
    colour = "() => { const c = document.querySelector('.square canvas'); return Array.from(c.getContext('2d').getImageData(0, c.height - 1, c.width, 1).data.slice(-4)); }"
    family = "() => getComputedStyle(document.documentElement).getPropertyValue('--causal').trim().split(' ').map(Number)"
    step_to(page, 0, 2)
    light = page.evaluate(colour)
    assert light == [*page.evaluate(family), 255]
    page.emulate_media(color_scheme="dark")
    page.wait_for_timeout(100)
    dark = page.evaluate(colour)
    assert dark == [*page.evaluate(family), 255] and dark != light
    paper = page.evaluate("() => getComputedStyle(document.body).backgroundColor")
    assert max(int(part) for part in paper[4:-1].split(",")) < 50


def test_reduced_motion_moves_nothing(pages, sample):
    still, moving = pages.open(sample, still=True), pages.open(sample)
    duration = "() => parseFloat(getComputedStyle(document.querySelector('.strip button')).transitionDuration)"
    assert still.evaluate(duration) == 0 and moving.evaluate(duration) > 0
    assert still.evaluate("() => getComputedStyle(document.documentElement).scrollBehavior") == "auto"


@pytest.mark.parametrize("width", [320, 390, 768, 1200])
def test_nothing_is_wider_than_the_page(pages, sample, width):
    page = pages.open(sample, width=width)
    for head in range(9):
        step_to(page, 0, head)
        assert page.evaluate("document.scrollingElement.scrollWidth") <= width
    step_to(page, 1, 0)
    assert page.evaluate("document.scrollingElement.scrollWidth") <= width


@pytest.mark.parametrize("width,dark", [(1200, False), (1200, True), (390, False), (390, True)])
def test_the_accessibility_scan_finds_nothing_serious(pages, sample, width, dark):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs the wheel axe-playwright-python").Axe()
    page = pages.open(sample, width=width, dark=dark, still=True)
    for layer, head in ((0, 0), (0, 7), (0, 8), (1, 1)):
        step_to(page, layer, head)
        found = axe.run(page).response["violations"]
        serious = [(each["id"], [node["html"][:120] for node in each["nodes"]][:3]) for each in found if each["impact"] in ("serious", "critical")]
        assert serious == []


def test_4096_tokens_keep_the_page_small(iha, pages, tmp_path):
    """What makes a step slow is elements: their number does not grow with the text."""
    iha("inspect", "causal*4,sliding:256*4,global*4", "--tokens", 4096, "--html", tmp_path / "page.html")
    page = pages.open(tmp_path / "page.html")
    for head in (0, 5, 11):
        step_to(page, 0, head)
        select(page, 4000)
        assert page.locator("*").count() < 1000
    assert (tmp_path / "page.html").stat().st_size < 200_000


# --- pictures of it ---


def test_pictures(iha, pages, plain_run, pseudo_run, tmp_path):
    """Screenshots as the documentation shows them."""
    folder = SOURCE / "docs" / "pictures" if os.environ.get("IHA_PICTURES") else tmp_path
    demo = pathlib.Path(os.environ.get("IHA_PICTURE_RUN", plain_run))
    iha("view", demo, "--html", tmp_path / "view.html")
    for name, width, height, dark, scale in (("viewer_light", 1200, 1010, False, 1), ("viewer_phone_dark", 390, 1250, True, 1)):
        page = pages.open(tmp_path / "view.html", width=width, height=height, dark=dark, scale=scale)
        step_to(page, 0, 1)
        page.locator(".strip").first.evaluate("strip => window.scrollTo(0, strip.closest('.viewer').getBoundingClientRect().top + scrollY - 20)")
        page.evaluate("document.activeElement.blur()")
        path = folder / f"{name}.png"
        page.screenshot(path=path)
        assert 10_000 < path.stat().st_size < 400_000
