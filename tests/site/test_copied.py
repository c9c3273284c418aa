"""What pages show of the package, and what their copy buttons give, is public."""

import ast
import importlib
import inspect
import re

import pytest
from cases import every
from mhsite.pages.cells import module_of
from mhsite.stories.source import DOCS, LABS, ROOT, console_code, runnable
from mhsite.stories.translation import shown_section

INCLUDE = re.compile(r'^\s*--8<-- "(?P<target>[^"]+)"', re.M)
PAGES = sorted(path for language in ("en", "zh") for path in (DOCS / language).rglob("*.md"))
MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in (ROOT / "mhattn").glob("*/[!_]*.py")
)


def is_private(name):
    return re.match(r"_(?!_)", name) is not None


def private_imports(code):
    """The imports of a private module or name of the package."""
    found = []
    for node in ast.walk(ast.parse(code)):
        if not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        source = (getattr(node, "module", None) or "").split(".")
        for alias in node.names:
            name = [*filter(None, source), *alias.name.split(".")]
            if name[0] == "mhattn" and any(map(is_private, name)):
                found.append(ast.unparse(node))
    return found


def private_subjects(shown):
    """The functions and classes with a private name that a section defines."""
    kinds = ast.FunctionDef | ast.ClassDef
    return [n.name for n in ast.parse(shown).body if isinstance(n, kinds) and is_private(n.name)]


def faults(target):
    section = shown_section(target)
    found = private_imports(section.code)
    if not section.is_story and section.path.parent != LABS:
        found += private_subjects(section.shown)
    return [f"{target}: {fault}" for fault in found]


@every("page", PAGES)
def test_pages_show_and_copy_only_what_is_public(page):
    targets = INCLUDE.findall(page.read_text(encoding="utf-8"))
    assert [fault for target in targets for fault in faults(target)] == []


@every("module", MODULES)
def test_examples_of_the_reference_import_only_what_is_public(module):
    namespace = importlib.import_module(module)
    for name in namespace.__all__:
        thing = getattr(namespace, name)
        docs = [getattr(thing, "__doc__", None)]
        docs += [
            getattr(member, "__doc__", None) for member in getattr(thing, "__dict__", {}).values()
        ]
        for doc in filter(None, docs):
            code = runnable(
                console_code(inspect.cleandoc(doc).replace("\n    ", "\n")),
                module_of(f"{module}.{name}"),
            )
            assert private_imports(code) == [], name


@pytest.mark.parametrize(
    "code",
    [
        "from mhattn._fused import softmax",
        "from mhattn import masks, _other as other",
        "import mhattn._fused",
        "def f():\n    from mhattn.core.masks import _apart",
    ],
)
def test_a_private_import_is_seen(code):
    assert len(private_imports(code)) == 1


def test_public_imports_and_other_packages_pass():
    code = "from mhattn import checks as check, __version__\nimport torch._dynamo\nimport math"
    assert private_imports(code) == []


def test_a_private_subject_is_seen():
    assert private_subjects("class A:\n    def _a(self): ...\ndef _b(): ...") == ["_b"]
