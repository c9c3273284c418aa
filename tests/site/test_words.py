"""The words of the interface have one home, docs/data/words.toml: none missing, none unused."""

import ast
import json
import re
import tomllib

import pytest
from mhsite import words
from mhsite.engines import build
from mhsite.stories.source import DOCS, LANGUAGES, ROOT

HAN = re.compile(r"[\u4e00-\u9fff]")
PYTHON = {path: path.read_text(encoding="utf-8") for path in (ROOT / "scripts").rglob("*.py")}
SCRIPTS = {path: path.read_text(encoding="utf-8") for path in (DOCS / "assets").glob("*.js")}
# What a script calls its words; those of dom.js and sentence.js are imported by others.
OWN = re.compile(r'\bconst (\w+) = wordsOf\("([\w-]+)"\)')
SHARED = {"punctuation": "punctuation", "words": "sentence"}
# Chinese that is no word of the interface: what readers type.
TYPED = {"calculator.js"}


def leaves(table, name=""):
    """Each word with its name: ``page.cite``, ``{"en": "Cite this page", "zh": "引用本页"}``."""
    for key, entry in table.items():
        path = f"{name}.{key}".lstrip(".")
        if set(entry) & set(LANGUAGES):
            yield path, entry
        else:
            yield from leaves(entry, path)


WORDS = dict(leaves(tomllib.loads(words.FILE.read_text(encoding="utf-8"))))


def holes(text):
    return sorted(re.findall(r"\{(\w*)\}", json.dumps(text)))


def asked_in_python(text):
    """All texts of a module, among which are the names of the words that it asks for."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def asked_in_script(text):
    """The names that a script asks for: of ``words.errors[why]`` the table ``errors``."""
    own = {variable: table for variable, table in OWN.findall(text)}
    for imported in re.findall(r"^import \{([^}]*)\}", text, re.M):
        own |= {name: SHARED[name] for name in re.findall(r"\w+", imported) if name in SHARED}
    for variable, path in re.findall(r"(?<![\w$])(?<!\w\.)(\w+)\.((?:\w+\.)*\w+)", text):
        if variable in own:
            yield f"{own[variable]}.{path}"
    for names, variable in re.findall(r"const \{ ([^}]*) \} = [^\n]*?\b(\w+)\n", text):
        if variable in own:  # taken apart
            yield from (
                f"{own[variable]}.{name.split(':')[0].strip()}" for name in names.split(",")
            )


def tables(table, name=""):
    """The names of all tables of words."""
    for key, entry in table.items():
        if not set(entry) & set(LANGUAGES):
            path = f"{name}.{key}".lstrip(".")
            yield path
            yield from tables(entry, path)


TABLES = set(tables(tomllib.loads(words.FILE.read_text(encoding="utf-8"))))


def missing(path):
    """Whether a script's ``words.columns.map`` asks for nothing: there is no ``columns``."""
    parts = path.split(".")
    return not any(".".join(parts[:stop]) in {*WORDS, *TABLES} for stop in range(2, len(parts) + 1))


def faults(word):
    """What is wrong with a word."""
    if set(word) != set(LANGUAGES):
        return ["a language is missing, or unknown"]
    english, chinese = word["en"], word["zh"]
    found = {
        "equal in both": english == chinese,
        "of another kind": type(english) is not type(chinese),
        "Chinese in the English": HAN.search(json.dumps(english, ensure_ascii=False)),
        "other curly brackets": holes(english) != holes(chinese),
        "a list of another length": isinstance(english, list) and len(english) != len(chinese),
    }
    return [fault for fault, is_there in found.items() if is_there]


def test_a_word_has_both_languages_and_they_differ():
    assert len(WORDS) > 300
    assert {name: faults(word) for name, word in WORDS.items() if faults(word)} == {}


@pytest.mark.parametrize(
    ("word", "fault"),
    [
        ({"en": "copy"}, "a language is missing, or unknown"),
        ({"en": "copy", "zh": "copy"}, "equal in both"),
        ({"en": "3", "zh": 3}, "of another kind"),
        ({"en": "复制", "zh": "拷贝"}, "Chinese in the English"),
        ({"en": "{count} bits", "zh": "{bits} 位"}, "other curly brackets"),
        ({"en": ["a", "b"], "zh": ["甲"]}, "a list of another length"),
    ],
)
def test_a_fault_of_a_word_is_seen(word, fault):
    assert faults(word) == [fault]


def test_every_word_that_is_asked_for_is_there():
    asked = {(path.name, name) for path, text in SCRIPTS.items() for name in asked_in_script(text)}
    assert len(asked) > 150
    assert {(file, name) for file, name in asked if missing(name)} == set()
    for path, text in PYTHON.items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "words.of":
                names = filter(
                    re.compile(r"[.]").search, asked_in_python(ast.unparse(node.args[1]))
                )
                assert set(names) <= {*WORDS, *TABLES}, path


def test_every_word_that_is_there_is_asked_for():
    asked = {name for text in SCRIPTS.values() for name in asked_in_script(text)}
    asked |= {name for text in PYTHON.values() for name in asked_in_python(text)}
    names = {name for name in asked if "." in name}  # a whole room is no answer
    used = {
        word
        for word in WORDS
        if any(
            name == word or word.startswith(f"{name}.") or name.startswith(f"{word}.")
            for name in names
        )
    }
    assert set(WORDS) - used == set()


def is_table_of_words(node):
    """Is it a dictionary of languages, one that has more in it than numbers?"""
    keys = {key.value for key in node.keys if isinstance(key, ast.Constant)}
    numbers = re.compile(r"[\d/ ]+")
    return bool(keys & set(LANGUAGES)) and not all(
        numbers.fullmatch(ast.unparse(value)) for value in node.values
    )


def test_no_such_table_stands_elsewhere():
    assert is_table_of_words(ast.parse('{"en": "of", "zh": "的"}', mode="eval").body)
    for path, text in PYTHON.items():
        for node in ast.walk(ast.parse(text)):
            assert not (isinstance(node, ast.Dict) and is_table_of_words(node)), path
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                told = HAN.search(node.value) and not re.search(r"[\[(|]", node.value)  # no pattern
                assert not told, f"{path}:{node.lineno} says {node.value}"
    for path, text in SCRIPTS.items():
        assert not re.search(r"\b(en|zh): [{\[\"`]", text), path
        assert path.name in TYPED or not HAN.search(text), path


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_script_brings_the_words_of_its_own_site(language):
    files = build.assets(language)
    for path, text in SCRIPTS.items():
        made = files[f"assets/{path.name}"]
        if not (asked := OWN.findall(text)):
            continue
        assert "wordsOf(" not in made, path
        for variable, table in asked:
            given = re.search(rf"const {variable} = (\{{.*\}})\n", made)[1]
            for name, word in json.loads(given).items():
                if f"{table}.{name}" in WORDS:
                    assert word == WORDS[f"{table}.{name}"][language]


def test_a_word_is_filled_and_a_wrong_name_says_so(monkeypatch, tmp_path):
    assert words.of("en", "course.place", number=2, count=9) == "Page 2 of 9 of the course"
    assert words.of("zh", "course.place", number=2, count=9) == "入门课，第 2 / 9 页"
    for name in ("course.plaice", "nosuch", "course.place.more"):
        with pytest.raises(ValueError, match=rf"words\.toml has no {name}"):
            words.of("en", name)
    with pytest.raises(ValueError, match=r"words\.toml has no nosuch"):
        words.into_script('const words = wordsOf("nosuch")', "en")
    monkeypatch.setattr(words, "FILE", tmp_path / "words.toml")
    for text, why in {
        '[page]\ncite.en = "Cite"': "page.cite must have en and zh, got ['en']",
        '[page]\ncite = "Cite"': "page.cite must have en and zh, got 'Cite'",
    }.items():
        words.FILE.write_text(text, encoding="utf-8")
        with pytest.raises(ValueError, match=re.escape(why)):
            words.of("en", "page.cite")
    words.FILE.write_text('[page]\ncite.en = "Cite it"\ncite.zh = "引"', encoding="utf-8")
    assert words.of("en", "page.cite") == "Cite it"  # the newest version
