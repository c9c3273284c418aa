"""All code of a page, pasted from its copy buttons into one file, runs and prints what it shows.

The run of a story has shown that of its code, in the order of its file. Where a page shows it in
another order, or shows source of the package above code that reads what the source defines, all
that was pasted is run as well: that takes as long as the story again, so in every run a few pages
are drawn, and a page that passed is not run again before its code, or what that reads, changes.
"""

import ast
import builtins
import hashlib
import importlib
import json
import multiprocessing
import re
import runpy
import subprocess
import symtable
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
from cases import drawn_number, try_all
from mhsite.pages.page import skeleton
from mhsite.stories import cache, keys, schedule
from mhsite.stories.source import LABS, LANGUAGES, ROOT, STORIES, Section, free_names, sections
from mhsite.stories.translation import shown_section
from test_site import PAGES, bare, blocks, cells, each_page, html, source
from test_source import RUFF

RUN = """\
import os, runpy, sys
os.chdir({folder!r})
os.environ["MPLBACKEND"] = "agg"
sys.stdout, sys.stderr = (open(name, "w", encoding="utf-8") for name in ("printed", "errors"))
__import__("torch").set_num_threads(1)
runpy.run_path("pasted.py", run_name="__main__")
"""


@dataclass
class Piece:
    """What one copy button gives, and the section that its block shows."""

    section: Section
    code: str

    @property
    def is_source(self):
        """Is it the package's own source, not a story's or a lab's code?"""
        return not self.section.is_story and self.section.path.parent != LABS

    @property
    def module(self):
        """Of the package's own source, as it is imported."""
        return ".".join(self.section.path.relative_to(ROOT).with_suffix("").parts)


def is_reference(page):
    return any(part.kind == "api" for part in skeleton(source("en", page)))


def pieces(site, page):
    includes = [part.value for part in skeleton(source("en", page)) if part.kind == "include"]
    pairs = zip(map(shown_section, includes), cells(site, "en", page), strict=True)
    return [Piece(section, "\n".join(copied)) for section, copied in pairs]


def run_program(code, folder):
    """Run it as a file in a process that has loaded torch already; what it printed and raised."""
    (folder / "pasted.py").write_text(code + "\n", encoding="utf-8")
    for name in (".cache", "docs"):  # what stories read
        if not (folder / name).exists():
            (folder / name).symlink_to(ROOT / name)
    (folder / "run.py").write_text(RUN.format(folder=str(folder)), encoding="utf-8")
    context = multiprocessing.get_context(schedule.START)
    if schedule.START == "forkserver":
        context.set_forkserver_preload(schedule.HEAVY)
    process = context.Process(target=runpy.run_path, args=[str(folder / "run.py")])
    process.start()
    process.join()
    printed, errors = ((folder / n).read_text(encoding="utf-8") for n in ("printed", "errors"))
    return SimpleNamespace(code=process.exitcode, printed=printed, errors=errors)


# What pasted source changes for the code around it


def bound_by(statement):
    """The names that a statement binds at the top level."""
    symbols = symtable.symtable(ast.unparse(statement), "<block>", "exec").get_symbols()
    return {s.get_name() for s in symbols if s.is_assigned() or s.is_imported()}


def read_by(statement):
    """The top level's names that a statement reads, also within what it defines."""
    names = [node for node in ast.walk(statement) if isinstance(node, ast.Name)]
    read = {name.id for name in names if isinstance(name.ctx, ast.Load)}
    if isinstance(statement, ast.AugAssign):
        read |= {name.id for name in [statement.target] if isinstance(name, ast.Name)}
    theirs = free_names(ast.unparse(statement)) | bound_by(statement) | set(dir(builtins))
    return read & theirs


def values(statement):
    """What a statement binds its names to: an import to what it imports, others to something."""
    found = {}
    if isinstance(statement, ast.Import | ast.ImportFrom):
        exec(ast.unparse(statement), found)
    return {name: found.get(name, object()) for name in bound_by(statement)}


def calls_later(statement):
    """Does it define what is called later?"""
    kinds = ast.FunctionDef | ast.Lambda | ast.ClassDef
    return any(isinstance(node, kinds) for node in ast.walk(statement))


def same_in(module, statement):
    """What of a statement of the package's source is the same as what the package has.

    A function, as long as all that it reads is. No class: the package asks for its own.
    """
    same = {} if isinstance(statement, ast.ClassDef) else module
    return {name: same[name] for name in bound_by(statement) if name in same}


def changed_names(whole):
    """The names that a page's story reads, now or when its functions are called, and finds changed.

    The page is read from top to bottom, with what each name is in the story alone, and what it is
    when all was pasted; and the names that pasted source reads and the page makes another thing of.
    """
    alone, pasted = ({name: getattr(builtins, name) for name in dir(builtins)} for _ in range(2))
    later, found, theirs = set(), set(), {}
    for piece in whole:
        module = vars(importlib.import_module(piece.module)) if piece.is_source else {}
        for statement in ast.parse(piece.code).body:
            new, before = values(statement) | same_in(module, statement), pasted
            pasted = pasted | new
            found |= {name for name in theirs.keys() & new.keys() if new[name] is not theirs[name]}
            read = read_by(statement)
            if piece.is_source:
                theirs |= {name: module[name] for name in read if name in module}
                continue
            if not isinstance(statement, ast.Import | ast.ImportFrom):  # it calls nothing
                found |= {n for n in read | later if before.get(n) is not alone.get(n)}
            alone |= new
            later |= read if calls_later(statement) else set()
    return found


def is_as_it_ran(whole):
    """Is the code that is no package source that of one story or lab, whole and in its order?"""
    shown = [piece.section for piece in whole if not piece.is_source]
    files = {section.path for section in shown}
    return shown == [section for file in files for section in sections(file).values()]


# The pages


@each_page
def test_copied_source_of_the_package_imports_what_it_needs(site, page):
    if is_reference(page):
        return  # its examples are run together below
    for piece in filter(lambda piece: piece.is_source, pieces(site, page)):
        assert free_names(piece.code) == set(), piece.section.name
        exec(compile(piece.code, piece.section.name, "exec"), {"__name__": "__main__"})


def test_imports_of_copied_source_are_sorted_as_ruff_does(site, tmp_path):
    for page in PAGES:
        if is_reference(page):
            codes = blocks(site, "en", page)
        else:
            codes = [piece.code for piece in pieces(site, page) if piece.is_source]
        for number, code in enumerate(codes):
            name = f"{page.replace('/', '-').removesuffix('.md')}-{number}.py"
            (tmp_path / name).write_text(code + "\n", encoding="utf-8")
    assert len(list(tmp_path.iterdir())) > 100
    done = subprocess.run(
        [*RUFF, "--config", f"src = ['{ROOT.as_posix()}']", tmp_path],
        capture_output=True,
        encoding="utf-8",
    )
    assert done.returncode == 0, done.stdout + done.stderr


def expected_output(whole, story_results):
    for piece in whole:
        if not piece.is_source:
            file = story_results[piece.section.path.stem] / "outputs.json"
            yield json.loads(file.read_text(encoding="utf-8"))[piece.section.name]["text"]


def assert_it_runs(site, story_results, page, folder):
    done = run_program("\n".join(blocks(site, "en", page)), folder)
    assert done.code == 0, done.errors
    if not is_reference(page):  # docstrings show values without print; doctest has checked them
        assert done.printed == "".join(expected_output(pieces(site, page), story_results))


def verdict(site, story_results, page, folder):
    """The file that says: this code printed this, with these modules, data and packages."""
    code = "\n".join(blocks(site, "en", page))
    (folder / "pasted.py").write_text(code, encoding="utf-8")
    parts = [RUN, keys.content(folder / "pasted.py", keys.package()), str(keys.environment())]
    if not is_reference(page):
        parts += expected_output(pieces(site, page), story_results)
    return cache.HOME / "pasted" / hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


@each_page
def test_copied_code_is_that_of_the_stories(site, page):
    compile("\n".join(blocks(site, "en", page)), page, "exec")
    if not is_reference(page):
        whole = pieces(site, page)
        assert [bare(piece.code) for piece in whole] == [bare(p.section.code) for p in whole]


def runs_again(site, page):
    """Did the run of its story leave open whether what can be copied from a page runs?"""
    return is_reference(page) or (
        not is_as_it_ran(whole := pieces(site, page)) or bool(changed_names(whole))
    )


DRAWN, PARTS = 2, 4  # pages for every run; how many slow tests the others are


@pytest.mark.parametrize(
    "part", ["drawn", *(pytest.param(part, marks=pytest.mark.slow) for part in range(PARTS))]
)
def test_copied_code_runs_and_prints_what_the_page_shows(site, story_results, part, tmp_path):
    """What is the same as what ran is not run again here; at night all of it is."""
    again = sorted((page for page in PAGES if runs_again(site, page)), key=drawn_number)
    assert len(again) > PARTS + DRAWN
    chosen = again[:DRAWN] if part == "drawn" else again[DRAWN + part :: PARTS]

    def attempt(page):
        folder = tmp_path / page.replace("/", "-")
        folder.mkdir()
        filed = verdict(site, story_results, page, folder)
        if not filed.is_file():
            assert_it_runs(site, story_results, page, folder)
            filed.parent.mkdir(parents=True, exist_ok=True)
            filed.touch()

    try_all(chosen, attempt)


@pytest.mark.nightly
@pytest.mark.parametrize("page", PAGES)
def test_all_copied_code_runs(site, story_results, page, tmp_path):
    if not is_reference(page):
        assert_it_runs(site, story_results, page, tmp_path)


def test_numbers_in_a_figure_are_those_of_the_copied_code(site, tmp_path):
    name, target = "why-heads.md", "figures/why-heads/picture.svg"
    whole = pieces(site, name)
    last = [piece.section.name for piece in whole].index("picture")
    code = [piece.code for piece in whole[: last + 1]]
    code += ["import json", "print(json.dumps(rows.tolist()))"]
    done = run_program("\n".join(code), tmp_path)
    assert done.code == 0, done.errors
    weights = json.loads(done.printed.splitlines()[-1])
    for language in LANGUAGES:
        figures = [block for block in source(language, name).walk() if block.kind == "figure"]
        number = [figure.value for figure in figures].index(target)
        drawn = html(site, language, name).select("svg.mh-figure")[number].select("text")
        drawn = [text for text in drawn if re.fullmatch(r"\d\.\d\d", text.text.strip())]
        drawn.sort(key=lambda text: (round(float(text["y"])), float(text["x"])))
        assert [t.text.strip() for t in drawn] == [f"{w:.2f}" for row in weights for w in row]


# What makes a second run necessary


def made(*codes):
    """Pieces with these codes; those that start with a sharp are the package's own source."""
    paths = {True: ROOT / "mhattn" / "core" / "masks.py", False: STORIES / "masks.pycon"}
    return [
        Piece(Section(paths[code.startswith("#")], str(number), 1, ""), code)
        for number, code in enumerate(codes)
    ]


IMPORT = "from mhattn import causal_mask"
SOURCE = "# its source\nfrom mhattn.core import checks as check\n"
READS = SOURCE + "def causal_mask(length): return check.floats(length)"
OTHER = "# its source\ndef other(length): ..."  # the package has none of this name
CLASS = "# its source\nclass causal_mask: ..."
SOURCE += "def causal_mask(length): ..."


@pytest.mark.parametrize(
    ("codes", "changed"),
    [
        ([IMPORT, SOURCE, "causal_mask(2)"], set()),
        ([IMPORT, "causal_mask(2)", CLASS, "other = 1"], set()),
        ([IMPORT, CLASS, "causal_mask(2)"], {"causal_mask"}),
        ([IMPORT, CLASS, IMPORT, "causal_mask(2)"], set()),
        ([IMPORT, "def f(): return causal_mask(2)", CLASS, "f()"], {"causal_mask"}),
        ([IMPORT, "f = lambda: causal_mask(2)", CLASS, "f()"], {"causal_mask"}),
        ([IMPORT, CLASS, "for mask in [causal_mask(2)]: ..."], {"causal_mask"}),
        (["other = 1", OTHER, "print(other)"], {"other"}),
        (["check = 1", SOURCE, "print(check)"], {"check"}),
        (["check = 1", SOURCE, "check = 2", "print(check)"], set()),
        ([IMPORT, READS, "check = 2", "causal_mask(2)"], {"check"}),
        ([IMPORT, READS, "check = 2"], {"check"}),
        ([SOURCE, "causal_mask = 3", "print(causal_mask)"], set()),
        (["from mhattn.core import checks as check", SOURCE, "check.floats"], set()),
        ([SOURCE, "[check for check in range(3)]"], set()),
        (["# its source\ndef sum(x): ...", "sum([1])"], {"sum"}),
        ([IMPORT, CLASS, "causal_mask = causal_mask(2)"], {"causal_mask"}),
        (["n = 1", "# its source\nn = 1", "n += 1"], {"n"}),
    ],
)
def test_names_that_copied_source_changes_are_seen(codes, changed):
    assert changed_names(made(*codes)) == changed


def test_another_order_and_a_missing_section_are_seen():
    whole = [Piece(section, "") for section in sections(STORIES / "index.pycon").values()]
    assert is_as_it_ran(whole)
    assert is_as_it_ran([*whole, *made("# source")])
    assert not is_as_it_ran(whole[::-1])
    assert not is_as_it_ran(whole[1:])
    assert not is_as_it_ran([*whole, *made("a story's")])
