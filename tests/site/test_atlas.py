"""The atlas in a browser: what a reader chooses, and what the page says of the pair, by Python."""

import csv
import io
import json
from decimal import ROUND_HALF_UP, Context
from urllib.parse import parse_qs, urlsplit

import pytest
from mhsite import words
from mhsite.pages import atlas
from test_site import each_language

from mhattn.costs import known_model, known_models

ROWS = {row["name"]: row for row in atlas.rows()}
FIRST = "qwen3-32b", "gemma-3-27b"
# Dense, experts; windows, all; a latent, grouped heads; states, a convolution; chosen keys.
PAIRS = [
    FIRST,
    ("mixtral-8x7b", "llama-2-13b"),
    ("deepseek-v3", "llama-3.1-405b"),
    ("ling-3.0-flash", "qwen3-next-80b-a3b"),
    ("hy4-preview", "glm-5"),
    ("deepseek-v4-flash", "lfm3-1.7b"),
    ("gemma-4-e2b", "falcon-7b"),
    ("gpt-2-124m", "jamba-v0.1"),
    ("gemma-2-27b", "olmo-3-7b"),
]
SAID = ".mh-atlas-differences li"
PHONE = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True}


def digits(number, count):
    """So many digits that say something, a five rounded up; a comma behind the thousands."""
    rounded = Context(prec=count, rounding=ROUND_HALF_UP).create_decimal(number)
    return f"{rounded.normalize():,f}"


def look(kind):
    """What a bar of the strip is called."""
    if kind["sees"] == "all" and kind["top"]:
        return "reused" if kind["reused"] else "chosen"
    return kind["sees"]


class Said:
    """What is said of two rows in one language, written a second time from the words."""

    def __init__(self, language):
        self.words = words.of(language, "atlas")
        self.marks = words.of(language, "punctuation")

    def seen(self, row, kind):
        said = self.words["whole" if len(row["kinds"]) == 1 else "part"]
        said = said.format(layers=kind["layers"], all=row["layers"])
        size = {"window": f"{kind['window']:,}", "top": f"{kind['top']:,}"}
        said += self.words["sees"][look(kind)].format(**size)
        if kind["every"] > 1:
            said += self.words["older"].format(every=kind["every"])
        return said + self.words["shared"] * kind["shared"]

    def heads(self, row):
        kinds = [k for k in row["kinds"] if k["key"] and not k["shared"] and k["sees"] != "state"]
        kind = max(kinds, key=lambda kind: kind["layers"])  # the first of equals
        name = "latent" if kind["latent"] else "single" if kind["kv"] == 1 else "heads"
        return self.words[name].format(**kind | {"latent": f"{kind['latent']:,}"}), kind["kv"]

    def positions(self, row):
        turned = "rotary" if row["rotary"] else "turned"
        found = [("learned", row["learned"]), (turned, row["rotary"] or row["turned"])]
        found.append(("bare", row["bare"]))
        return self.listed(row, found) or None

    def norms(self, row):
        return (
            self.listed(row, [(n, row[n]) for n in ("norm", "sinks", "cap")])
            or self.words["unnamed"]
        )

    def listed(self, row, found):
        said = [self.words[name].format(**row) for name, there in found if there]
        return self.marks["list_comma"].join(said)

    def amount(self, text, number, unit):
        return None if number is None else text.format(number=digits(number / unit, 3))

    def facts(self, row):
        layers = self.marks["semicolon"].join(self.seen(row, kind) for kind in row["kinds"])
        experts = self.words["experts"].format(**row) if row["experts"] else self.words["none"]
        yield "layers", layers, None
        yield "heads", *self.heads(row)
        yield "experts", experts, None
        yield "positions", self.positions(row), None
        yield "norms", self.norms(row), None
        billions = self.words["billions"], float(self.words["unit"])
        for name, text, unit in (
            ("parameters", *billions),
            ("active", *billions),
            ("token", "{number} KiB", 2**10),
            ("long", "{number} GiB", 2**30),
            ("step", "{number} GFLOPs", 1e9),
        ):
            yield name, self.amount(text, row[name], unit), row[name]

    def ratio(self, first, second, said):
        if not first or not second or abs(second / first - 1) < 0.05:
            return ""
        times = second / first
        if times in (0.5, 2):
            return said["half" if times < 1 else "twice"]
        number = digits(times * (100 if times < 1 else 1), 2)
        return said["percent" if times < 1 else "times"].format(number=number)

    def differences(self, one, two):
        for (name, first, a), (_, second, b) in zip(self.facts(one), self.facts(two), strict=True):
            if first != second and first is not None and second is not None:
                ratio = self.ratio(a, b, self.words["keys" if name == "heads" else "ratio"])
                titles = {"one": one["title"], "two": two["title"]}
                said = self.words["difference"].format(
                    first=first, second=second, ratio=ratio, **titles
                )
                yield self.words["labels"][name] + self.marks["colon"] + said


def place(language, query=""):
    return ("" if language == "en" else "zh/") + "known-models/" + query


def shown(page):
    page.locator(SAID).first.wait_for()
    return page.locator(SAID).evaluate_all("all => all.map(each => each.textContent)")


def expected(language, one, two):
    return [*Said(language).differences(ROWS[one], ROWS[two])]


def asked(page):
    return parse_qs(urlsplit(page.evaluate("location.href")).query)


@each_language
def test_reader_chooses_two_and_the_address_keeps_them(open_page, language):
    page = open_page(place(language))
    assert shown(page) == expected(language, *FIRST)
    assert asked(page) == {}
    one, two = (page.locator(f"[data-widget=atlas] select[name={name}]") for name in ("one", "two"))
    assert one.locator("option").count() == len(ROWS)
    one.select_option(label="DeepSeek-V3")
    two.select_option(label="Ling 3.0 Flash")
    pair = "deepseek-v3", "ling-3.0-flash"
    assert shown(page) == expected(language, *pair)
    assert asked(page) == {"one": ["deepseek-v3"], "two": ["ling-3.0-flash"]}
    page.reload()
    assert shown(page) == expected(language, *pair)
    assert (one.input_value(), two.input_value()) == pair
    page.get_by_role("button", name=words.of(language, "atlas.swap"), exact=True).click()
    assert shown(page) == expected(language, *pair[::-1])
    two.select_option("ling-3.0-flash")
    assert shown(page) == [words.of(language, "atlas.same")]


@each_language
@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_differences_are_those_of_python(open_page, language, pair):
    page = open_page(place(language, "?one={}&two={}".format(*pair)))
    assert shown(page) == expected(language, *pair)
    assert len(expected(language, *pair)) > 2


DIFFERENCES = """async ([module, pairs]) => {
    const rows = await (await fetch(new URL("../data/atlas.json", module))).json()
    const { differences } = await import(module)
    const find = name => rows.find(row => row.name === name)
    return pairs.map(([one, two]) => differences(find(one), find(two)).map(([name, said]) => said))
}"""


@each_language
def test_differences_of_every_model_and_the_next(open_page, home, language):
    """Each model beside the next one and the one eleven further, in the page's own function."""
    names = [*ROWS]
    pairs = [[a, names[(i + far) % len(names)]] for i, a in enumerate(names) for far in (1, 11)]
    page = open_page(place(language))
    module = home + ("" if language == "en" else "zh/") + "assets/atlas.js"
    colon = words.of(language, "punctuation.colon")
    for pair, said in zip(pairs, page.evaluate(DIFFERENCES, [module, pairs]), strict=True):
        assert said == [each.split(colon, 1)[1] for each in expected(language, *pair)], pair


@each_language
@pytest.mark.parametrize("options", [{}, PHONE], ids=["desk", "phone"])
def test_drawings_show_the_rows(open_page, language, options):
    page = open_page(place(language), **options)
    shown(page)
    for pair in PAIRS:
        for select, name in zip(("one", "two"), pair, strict=True):
            page.locator(f"[data-widget=atlas] select[name={select}]").select_option(name)
        for i, name in enumerate(pair):
            row, card = ROWS[name], page.locator(".mh-atlas-cards section").nth(i)
            bars = card.locator(".mh-atlas-strip rect")
            assert bars.count() == row["layers"]
            order = row["order"] or "".join(
                chr(97 + n) * k["layers"] for n, k in enumerate(row["kinds"])
            )
            classes = bars.evaluate_all("all => all.map(each => each.getAttribute('class'))")
            kinds = [row["kinds"][ord(letter) - 97] for letter in order]
            assert classes == [f"mh-sees-{look(kind)}" for kind in kinds]
            for kind, line in zip(row["kinds"], card.locator("li").all(), strict=True):
                assert line.locator(".mh-atlas-query").count() == kind["heads"]
                assert line.locator(".mh-atlas-key").count() == (
                    0 if kind["latent"] else kind["kv"]
                )
                assert line.locator(".mh-atlas-latent").count() == (kind["latent"] > 0)
            assert card.locator(".mh-atlas-experts").count() == (row["experts"] > 0)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_what_differs_is_marked(open_page):
    page = open_page(place("en", "?one=mixtral-8x7b&two=llama-2-13b"))
    shown(page)
    for card in page.locator(".mh-atlas-cards section").all():
        marked = card.locator("dl > .mh-differs dt").all_inner_texts()
        names = ["experts", "parameters", "active", "token", "long", "step"]
        assert marked == [words.of("en", "atlas.labels")[name] for name in names]


@each_language
def test_without_scripts_the_tables_have_the_rows(open_page, language):
    page = open_page(place(language), java_script_enabled=False)
    assert page.locator("[data-widget=atlas] img").count() == 1
    for row in (row for row in ROWS.values() if row["class"]):
        assert row["title"] in page.locator(f"tr:has([id='{row['name']}'])").inner_text()


# The rows


def test_both_files_have_all_rows():
    files = atlas.files()
    assert json.loads(files["data/atlas.json"]) == [*ROWS.values()]
    lines = [*csv.DictReader(io.StringIO(files["data/atlas.csv"]))]
    assert [line["name"] for line in lines] == [*ROWS]
    assert {line["title"]: line["token"] for line in lines}["Llama 3.1 8B"] == "131072"
    decoders = [name for name in known_models() if known_model(name).kind == "decoder"]
    assert len(ROWS) == len(decoders) + len(atlas.found())


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_page_says_how_many_there_are(language):
    from mhsite.stories.source import DOCS

    assert (
        f" {len(ROWS)} " in (DOCS / language / "known-models.md").read_text("utf-8").split("##")[0]
    )


def test_what_is_turned_is_said_where_something_is_turned():
    """Kimi Linear's latent has 64 numbers for a position that its class never turns."""
    assert all(row["turned"] for row in ROWS.values() if row["rotary"])
    kimi, deepseek = ROWS["kimi-linear-48b-a3b"], ROWS["deepseek-v3"]
    assert Said("en").positions(kimi) is None
    assert Said("en").positions(deepseek) == "rotary, 64 numbers of a head"


def test_a_row_by_its_class_costs_what_a_known_model_of_its_sizes_does():
    """A.X K1 has Kimi K2's attention: its cache, and the step but for the matrices."""
    axk, kimi = ROWS["a.x-k1"], known_model("kimi-k2")
    assert axk["token"] == kimi.kv_cache_bytes_per_token()
    assert axk["long"] == kimi.kv_cache_bytes(atlas.LONG)
    pairs = 61 * 64 * (2 * 512 + 64) * atlas.LONG
    looked_up = 163_840 * 7168
    assert axk["step"] == 2 * (axk["active"] - looked_up + pairs)
    cwm = ROWS["cwm-32b"]
    kept = 16 * atlas.LONG + 48 * 8192
    assert cwm["long"] == 2 * kept * 2 * 8 * 128
    assert cwm["step"] == 2 * (cwm["active"] - 128_256 * 6144 + kept * 48 * 256)
