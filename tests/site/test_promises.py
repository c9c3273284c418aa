"""What a page asks a reader to do, a test does: promises.toml says which one, page by page."""

import ast
import re
import tomllib
from pathlib import Path

import pytest
from mhsite.pages.page import page_paths, parse, read
from mhsite.stories.source import DOCS, LANGUAGES

HERE = Path(__file__).parent
LIST = tomllib.loads((HERE / "promises.toml").read_text(encoding="utf-8"))
# Verbs that ask for a hand. Those of the second line are also said of numbers and tensors, so they
# count only where there is something to touch.
HANDS = {
    "en": r"Press|Click|Drag|Type|Hover|Tap|Uncheck|Paste|Point at|Download",
    "zh": r"点击|(?<!节)点一|点任|勾选|拖动|按下(?!标)|粘贴|鼠标|(?<!正在)下载(?=笔记|脚本|本页)",
}
BESIDE_WIDGETS = {
    "en": r"(?i:Choose|Edit|Set `|Sort by|Step|Switch off|Empty|Lower|Let \*|type \d|reset)",
    "zh": r"选“|选一|选以|\*\*选中|填 ?\d|填上|改成|改一改|然后还原|换成自己|降低温度|先关掉|清空"
    r"|打乱再|输入两遍|按“.*排序",
}
STARTS = {"en": r"(?:^|[.!?:()] |\*\*|\n- |, )(?:(?i:and|then|or) |Last, )?", "zh": ""}
ENDS = {"en": r"(?<=[.!?:])\s", "zh": r"(?<=[。？！；])"}


def prose(page):
    """Titles and sentences of a page; what its code and tables say is not asked of a hand."""
    for block in page.walk():
        if block.kind == "prose":
            yield from re.split(r"\n\n|\n(?=- )", block.text)
        elif block.kind == "block" and block.value in ("details", "entry"):
            yield block.title


def widgets(page):
    return [b.value.partition(" ")[2] for b in page.walk() if b.kind == "widget"]


def invitations(page):
    """The sentences of a page that ask for a hand."""
    language = page.language
    verbs = HANDS[language] + ("|" + BESIDE_WIDGETS[language] if widgets(page) else "")
    whole = r"\b" if language == "en" else ""
    asks = re.compile(f"{STARTS[language]}(?:{verbs}){whole}")
    for piece in prose(page):
        for sentence in re.split(ENDS[language], " ".join(piece.split())):
            if asks.search(sentence):
                yield sentence


def pages(language):
    return {path.as_posix(): read(DOCS / language / path) for path in page_paths(language)}


def kept(page, language):
    """The words that a page's promises have; those without any are found in every sentence."""
    ours = [each for each in LIST["promise"] if each["page"] == page and "widget" not in each]
    return [each.get(language, "") for each in ours if language in each or len(each) == 2]


@pytest.mark.parametrize("language", LANGUAGES)
def test_what_a_page_asks_for_is_in_the_list(language):
    missing = [
        f"{path}: {sentence}"
        for path, page in pages(language).items()
        for sentence in invitations(page)
        if not any(said in sentence for said in kept(path, language))
    ]
    assert missing == [], "name the test that does it in tests/site/promises.toml"


@pytest.mark.parametrize("language", LANGUAGES)
def test_what_the_list_says_stands_on_its_page(language):
    texts = {
        path: " ".join(" ".join(piece.split()) for piece in prose(page))
        for path, page in pages(language).items()
    }
    gone = [
        each[language]
        for each in LIST["promise"]
        if language in each and each[language] not in texts[each["page"]]
    ]
    assert gone == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_widget_is_in_the_list(language):
    listed = {(each["page"], each["widget"]) for each in LIST["promise"] if "widget" in each}
    assert listed == {
        (path, name) for path, page in pages(language).items() for name in widgets(page)
    }


def test_every_test_of_the_list_is_there():
    named = [each["test"] for each in LIST["promise"]] + list(LIST["everywhere"].values())
    for name in named:
        file, _, function = name.partition("::")
        tree = ast.parse((HERE / file).read_text(encoding="utf-8"))
        found = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        assert function in found | {""}, name


@pytest.mark.parametrize(
    ("language", "text", "asks"),
    [
        ("en", "# T { #t }\n\nHere is a table. Click it.\n", True),
        ("en", "# T { #t }\n\nChoose a basis.\n", False),
        (
            "en",
            "# T { #t }\n\n<!-- widget sentence -->\n\nOr choose a word, then type 4 here.\n",
            True,
        ),
        ("en", "# T { #t }\n\n<!-- widget sentence -->\n\nWe choose a word.\n", False),
        ("zh", "# T { #t }\n\n这是一张表，请点击。\n", True),
        ("zh", "# T { #t }\n\n把它改成零。\n", False),
        ("zh", "# T { #t }\n\n<!-- widget sentence -->\n\n把它改成零。\n", True),
    ],
)
def test_an_invitation_is_seen(language, text, asks):
    page = parse(text, DOCS / language / "page.md")
    assert bool(list(invitations(page))) == asks
