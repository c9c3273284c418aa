"""The timeline of decoders: dates and their pages, kinds by hand, and the marks in a browser."""

import csv
import io
import itertools
import re
import subprocess
import tomllib
from urllib.parse import parse_qs, urlsplit

import pytest
from measuring import dates
from mhsite import words
from mhsite.pages import atlas, known_models, timeline
from mhsite.stories.source import DOCS, SourceError
from test_site import each_language

ROWS = {row["name"]: row for row in atlas.rows()}
DATED = {name: row for name, row in ROWS.items() if row["date"]}
PHONE = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True}
# Of each kind, the first of these models, as its papers and announcements say.
FIRST = {
    "heads": ("GPT-2 124M", "2019-02"),
    "groups": ("Falcon 40B", "2023-06"),
    "single": ("Falcon 7B", "2023-06"),
    "window": ("Mistral 7B v0.1", "2023-09"),
    "latent": ("DeepSeek-V2", "2024-05"),
    "chosen": ("DeepSeek-V3.2", "2025-12"),
    "state": ("Jamba v0.1", "2024-03"),
}


@pytest.mark.parametrize(
    ("says", "date"),
    [
        ('release_date = "2026-04-02"', "2026-04-02"),
        ('release_date = "2025-09"', "2025-09"),
        ("This model was published in HF papers on 2025-10-30", "2025-10-30"),
        ("2024.09.19: We released the Qwen2.5 series.", "2024-09-19"),
        ("[2025/08/20] We release Seed-OSS-36B-Base", "2025-08-20"),
        ("Llama 3.1 | 7/23/2024", "2024-07-23"),
        ("v0.3 latest 05/22/2024", "2024-05-22"),
        ("Published June 5, 2023", "2023-06-05"),
        ("21st February 2024: Gemma comes in two sizes, 2B and 7B", "2024-02-21"),
        ("27 JUN 2024: now available in 9B and 27B", "2024-06-27"),
        ("762M (Aug 2019)", "2019-08"),
        ("arXiv:2005.14165", "2020-05"),
    ],
)
def test_a_date_is_read_from_words(says, date):
    assert timeline.when(says) == date


@pytest.mark.parametrize("says", ["", "one of 2024's best", "Qwen2.5 in 1000 sizes"])
def test_words_without_a_date_stop_the_build(says):
    with pytest.raises(SourceError, match="no date"):
        timeline.when(says)


def test_every_date_is_a_day_or_a_month():
    assert len(DATED) > 100
    for row in DATED.values():
        assert re.fullmatch(r"20(1[89]|2[0-6])-(0[1-9]|1[0-2])(-([0-2]\d|3[01]))?", row["date"])
        assert row["year"] == int(row["date"][:4])
        assert urlsplit(row["dated"]).scheme == "https"
        assert "/blob/" not in row["dated"] or re.search(r"/blob/[0-9a-f]{40}/", row["dated"])
    assert all(row["dated"] == "" for row in ROWS.values() if not row["date"])


def test_years_of_the_table_are_those_of_the_dates():
    years = known_models.released()
    both = {name: row["date"][:4] for name, row in DATED.items() if name in years}
    assert len(both) > 80
    assert {name: years[name] for name in both} == both


def test_a_paper_is_no_earlier_than_its_number():
    """Of rows from a paper: the month of its number is the month of the date, or just before."""
    numbered = {n: re.search(r"arxiv.org/abs/(\d\d)(\d\d)", r["source"]) for n, r in DATED.items()}
    months = {n: (2000 + int(m[1])) * 12 + int(m[2]) for n, m in numbered.items() if m}
    assert len(months) > 8
    for name, month in months.items():
        year, number = map(int, ROWS[name]["date"].split("-")[:2])
        assert abs(year * 12 + number - month) <= 1, name


def test_filed_words_are_those_of_the_chosen_pages():
    chosen = tomllib.loads(dates.CHOSEN.read_text("utf-8"))
    named = [name for page in chosen["pages"] for name in page["models"]]
    assert len(named) == len(set(named)) == len(DATED)
    assert {*named} == {*DATED}
    for page, filed in zip(chosen["pages"], timeline.pages(), strict=True):
        assert filed["models"] == page["models"]
        if "at" in page:
            repository, path = page["at"].split(":")
            commit = chosen["commits"][repository]
            assert filed["source"] == f"https://github.com/{repository}/blob/{commit}/{path}"
        else:
            assert (filed["source"], filed["says"]) == (page["url"], page["says"])


def test_a_model_on_two_pages_stops_the_build(monkeypatch):
    twice = [{"source": "https://a", "says": "2024-01", "models": ["gemma-7b"]}] * 2
    monkeypatch.setattr(timeline, "pages", lambda: twice)
    with pytest.raises(SourceError, match="gemma-7b stands on two pages"):
        timeline.dates()


def test_pages_are_read_in_clones(tmp_path, monkeypatch):
    """As `python scripts/models.py --dates` does it, at the commit and not at the newest."""
    clone = tmp_path / "clones" / "huggingface" / "transformers"
    clone.mkdir(parents=True)

    def git(*asked):
        name = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
        command = ["git", "-C", str(clone), *name, *asked]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    git("init", "-q")
    commits = []
    for date in ("2025-08-05", "2031-01-01"):
        text = f"<!--a-->\n*This model was released on {date} and added to it on 2025-09-01.*\n"
        (clone / "gpt.md").write_text(text, encoding="utf-8")
        git("add", "gpt.md")
        git("commit", "-qm", date)
        commits.append(git("rev-parse", "HEAD"))
    chosen = tmp_path / "dates.toml"
    chosen.write_text(
        'pages = [{ at = "huggingface/transformers:gpt.md", models = ["gpt-oss-20b"] }]\n'
        f'[commits]\n"huggingface/transformers" = "{commits[0]}"\n',
        encoding="utf-8",
    )
    monkeypatch.setattr(dates, "CHOSEN", chosen)
    monkeypatch.setattr(dates, "FOUND", tmp_path / "dates.json")
    dates.write(tmp_path / "clones")
    monkeypatch.setattr(timeline, "FOUND", tmp_path / "dates.json")
    (page,) = timeline.pages()
    assert page["says"] == "This model was released on 2025-08-05"
    assert timeline.dates()["gpt-oss-20b"] == ("2025-08-05", page["source"])


@pytest.mark.parametrize("line", ["*This model was contributed to it on 2026-07-15.*", "text"])
def test_a_page_that_dates_its_class_alone_says_no_release(line):
    with pytest.raises(ValueError, match=r"inkling\.md has no line with a date"):
        dates.words_of("inkling.md", line)


@pytest.mark.parametrize(
    ("name", "lane"),
    [
        ("gpt-3-175b", "heads"),
        ("llama-2-7b", "heads"),
        ("llama-2-70b", "groups"),
        ("falcon-7b", "single"),
        ("gemma-3-27b", "window"),
        ("llama-4-scout", "window"),  # in chunks
        ("gpt-oss-20b", "window"),
        ("kimi-k2", "latent"),
        ("glm-5", "chosen"),
        ("hy4-preview", "chosen"),
        ("kimi-linear-48b-a3b", "state"),  # and a latent in the others
        ("lfm3-1.7b", "state"),  # a convolution
    ],
)
def test_kinds_by_hand(name, lane):
    assert ROWS[name]["lane"] == lane


def test_newest_first_and_a_year_alone_ends_its_year():
    order = [*ROWS.values()]
    assert [row["year"] for row in order] == sorted((r["year"] for r in order), reverse=True)
    for before, after in itertools.pairwise(order):
        if before["year"] == after["year"]:
            assert before["date"][:7] >= after["date"][:7]


@each_language
def test_the_page_says_how_many_have_a_date(language):
    text = (DOCS / language / "known-models.md").read_text("utf-8")
    said = {
        "en": f"{len(DATED)} of the {len(ROWS)} have",
        "zh": f"{len(ROWS)} 个模型里有 {len(DATED)} 个",
    }
    assert said[language] in text


def test_the_sheet_has_every_date_with_its_page():
    lines = {x["name"]: x for x in csv.DictReader(io.StringIO(atlas.files()["data/atlas.csv"]))}
    assert {n: (x["date"], x["dated"]) for n, x in lines.items() if x["date"]} == timeline.dates()


# In a browser


def opened(open_page, language, **options):
    page = open_page(("" if language == "en" else "zh/") + "known-models/", **options)
    page.locator(".mh-timeline-mark.mh-timeline-chosen").first.wait_for()
    page.locator("[data-widget=timeline]").scroll_into_view_if_needed()
    return page


def chosen(page):
    marked = page.locator(".mh-timeline-chosen")
    return {*marked.evaluate_all("all => all.map(each => each.dataset.name)")}


@each_language
@pytest.mark.parametrize("options", [{}, PHONE], ids=["desk", "phone"])
def test_each_model_has_a_mark_at_its_date(open_page, language, options):
    page = opened(open_page, language, **options)
    rows = page.locator(".mh-timeline-row").all()
    lanes = [lane for lane in words.of(language, "timeline.lanes")]
    assert len(rows) == len(lanes) == len(timeline.LANES)
    left = {}
    for row, lane, head in zip(rows, lanes, page.locator(".mh-timeline-lane").all(), strict=True):
        marks = row.locator(".mh-timeline-mark").evaluate_all(
            "all => all.map(each => { const { x, y, width } = each.getBoundingClientRect();"
            " return [each.dataset.name, x + width / 2, y, each.tagName,"
            " each.classList.contains('mh-timeline-open')] })"
        )
        here = {name for name, each in ROWS.items() if each["lane"] == lane}
        assert {mark[0] for mark in marks} == here
        assert len(marks) == len(here)
        title, month = FIRST[lane]
        assert [ROWS[name]["title"] for name, _, _, tag, _ in marks if tag == "rect"] == [title]
        said = words.of(language, "timeline.first", title=title, month=month)
        assert head.inner_text().endswith(said)
        for name, x, y, _, hollow in marks:
            assert hollow == (ROWS[name]["date"] == "")
            left[name] = x
            covered = [m for m in marks if abs(m[1] - x) < 6 and abs(m[2] - y) < 6]
            assert [m[0] for m in covered] == [name]
    for early, late in [
        ("gpt-2-124m", "gpt-3-175b"),
        ("llama-2-7b", "mistral-7b-v0.1"),
        ("mistral-7b-v0.1", "deepseek-v2"),
        ("qwen3-8b", "glm-5"),
    ]:
        assert left[early] < left[late]
    years = (left["glm-5"] - left["gpt-2-124m"]) / (left["qwen3-8b"] - left["gpt-2-124m"])
    assert years == pytest.approx(
        (2026 + 42 / 365 - 2019 - 44 / 365) / (2025 + 118 / 365 - 2019 - 44 / 365), abs=0.01
    )
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@each_language
@pytest.mark.parametrize("options", [{}, PHONE], ids=["desk", "phone"])
def test_a_click_puts_a_model_into_the_comparison(open_page, language, options):
    page = opened(open_page, language, **options)
    assert chosen(page) == {"qwen3-32b", "gemma-3-27b"}
    press = "tap" if options else "click"
    for name in ("deepseek-v2", "falcon-7b"):
        getattr(page.locator(f".mh-timeline-mark[data-name={name}]"), press)()
    assert chosen(page) == {"deepseek-v2", "falcon-7b"}
    shown = page.locator(".mh-atlas-name b").all_inner_texts()
    assert shown == ["DeepSeek-V2", "Falcon 7B"]
    asked = parse_qs(urlsplit(page.evaluate("location.href")).query)
    assert asked == {"one": ["deepseek-v2"], "two": ["falcon-7b"]}
    line = page.locator(".mh-timeline-said")
    assert line.inner_text().startswith("Falcon 7B")
    assert "2023-06-05" in line.inner_text()
    assert line.inner_text().endswith(
        words.of(language, "timeline.compared", one="DeepSeek-V2", two="Falcon 7B")
    )
    assert line.locator("a").get_attribute("href") == ROWS["falcon-7b"]["dated"]
    dated = page.locator(".mh-atlas-name a").filter(has_text="2023-06-05")
    assert dated.get_attribute("href") == ROWS["falcon-7b"]["dated"]
    page.locator("[data-widget=atlas] select[name=one]").select_option("llama-2-7b")
    assert chosen(page) == {"llama-2-7b", "falcon-7b"}


def test_a_year_without_a_day_says_so(open_page):
    page = opened(open_page, "en")
    mark = page.locator(".mh-timeline-mark[data-name=cwm-32b]")
    mark.hover()
    assert page.locator(".mh-timeline-said").inner_text().strip() == "CWM 32B, 2025, no day found"
    assert page.locator(".mh-timeline-said a").count() == 0
