"""What the package promises as a whole: names, imports, docstrings, sections."""

import ast
import importlib
import inspect
import re
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
import torch
from cases import every

import mhattn

PACKAGE = Path(mhattn.__file__).parent
SCRIPTS = PACKAGE.parent / "scripts"


def rooms_of_the_architecture():
    """What each room may import: the tables of ARCHITECTURE.md, rows by their first column."""
    text = (PACKAGE.parent / "ARCHITECTURE.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(mhattn\.\w+|mhsite\.\w+|measuring)` \|.*\| ([^|]+) \|$", text, re.M)
    names = [name for _, allowed in rows if allowed != "nothing" for name in allowed.split(", ")]
    assert all(re.fullmatch(r"`\w+`", name) for name in names), "names in backticks, with commas"
    return {room: re.findall(r"`(\w+)`", allowed) for room, allowed in rows}


ROOMS = rooms_of_the_architecture()
ALONE = {"mhsite.folders", "mhsite.words"}  # modules beside the rooms, which have no door
FLOORS = [room.split(".")[1] for room in ROOMS if room.startswith("mhattn.")]
ENGINE = [room.split(".")[1] for room in ROOMS if room.startswith("mhsite.")]
MODULES = sorted(
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
    for path in PACKAGE.rglob("*.py")
    if path.stem != "__init__"
)
DOORS = ["mhattn", *(f"mhattn.{floor}" for floor in FLOORS)]
DRAWS_OR_TIMES = {"show.fonts", "show.plots", "show.gallery", "show.gallery_page", "inside.timing"}
DRAWING = {"show.fonts", "show.gallery_page", "show.plots"}


def file_of(module):
    return PACKAGE.joinpath(*module.split(".")).with_suffix(".py")


def imported(module):
    """Top-level packages and modules of mhattn that a module's source imports anywhere."""
    names = set()
    for node in ast.walk(ast.parse(file_of(module).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} has a relative import"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    ours = {".".join(n.split(".")[1:3]) for n in names if n.startswith("mhattn.")}
    return {name.split(".")[0] for name in names}, ours


def test_every_room_is_in_the_architecture():
    rooms = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert rooms == set(FLOORS)
    assert {module.split(".")[0] for module in MODULES} == {"door", *rooms}
    rooms = {path.parent.name for path in (SCRIPTS / "mhsite").glob("*/__init__.py")}
    alone = {path.stem for path in (SCRIPTS / "mhsite").glob("*.py")} - {"__init__"}
    assert rooms | alone == set(ENGINE)
    assert {path.parent.name for path in SCRIPTS.glob("*/__init__.py")} == {"mhsite", "measuring"}


def test_the_architecture_leads_one_way():
    """No room may import one of a later row."""
    for rooms in (FLOORS, [*ENGINE, "measuring"]):
        for number, room in enumerate(rooms):
            allowed = {
                name for title, names in ROOMS.items() if title.endswith(room) for name in names
            }
            assert allowed - {"mhattn"} <= set(rooms[:number]), room


@every("module", MODULES)
def test_a_module_imports_what_its_room_may(module):
    """Each names the module that it imports from; the doors are for those who use the package."""
    packages, ours = imported(module)
    room = module.split(".")[0]
    assert ours <= set(MODULES), "imported from a package's door"
    allowed = {room, *ROOMS[f"mhattn.{room}"]} if room in FLOORS else set()
    assert {name.split(".")[0] for name in ours} <= allowed
    assert not ours & DRAWS_OR_TIMES or room == "show"
    assert room != "costs" or "torch" not in packages


def rooms_imported(file):
    """The rooms of the engine, commands, and mhattn, that a script imports anywhere."""
    names = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file} has a relative import"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    rooms = set()
    for package, *rest in (name.split(".") for name in names):
        if package == "mhsite" and rest:
            rooms.add(rest[0])
        elif package in ("mhattn", "measuring"):
            rooms.add(package)
        elif (SCRIPTS / f"{package}.py").is_file():
            rooms.add(f"scripts/{package}.py")
    return rooms


ENGINE_FILES = sorted(p for name in ("mhsite", "measuring") for p in (SCRIPTS / name).rglob("*.py"))


@pytest.mark.parametrize(
    "file", ENGINE_FILES, ids=lambda file: file.relative_to(SCRIPTS).as_posix()
)
def test_a_module_of_the_engine_imports_what_its_room_may(file):
    """No command, and only rooms of its row."""
    where = file.relative_to(SCRIPTS).with_suffix("").parts
    if where == ("mhsite", "__init__"):
        assert rooms_imported(file) == set()
        return
    room = where[1] if where[0] == "mhsite" else where[0]
    own = ROOMS[f"mhsite.{room}" if where[0] == "mhsite" else room]
    assert rooms_imported(file) <= {room, *own}


@pytest.mark.parametrize("room", [room for room in ROOMS if room not in ALONE])
def test_a_door_names_each_module_of_its_room_and_no_other(room):
    home = PACKAGE.parent if room.startswith("mhattn.") else SCRIPTS
    folder = home.joinpath(*room.split("."))
    tree = ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))
    exported = importlib.import_module(room).__all__ if room.startswith("mhattn.") else []
    named = set(re.findall(r"(?<!`)`(\w+)`(?!`)", ast.get_docstring(tree))) - set(exported)
    modules = {path.stem for path in folder.glob("*.py") if path.stem[:2] != "__"}
    modules |= {path.parent.name for path in folder.glob("*/__init__.py")}
    door = (folder / "__init__.py").relative_to(PACKAGE.parent)
    missing, gone = sorted(modules - named), sorted(named - modules)
    assert not missing, f"{door}: add a line to its docstring for {', '.join(missing)}"
    assert not gone, f"{door}: its docstring names {', '.join(gone)}, which is not there"


def imports_anywhere(file, folder, prefix):
    """The modules of ``folder``, named with ``prefix``, that a file there imports.

    Late imports, within functions, and those that only type checkers read count as well.
    """
    names = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    own = {name.removeprefix(prefix) for name in names if name.startswith(prefix)}
    parts = ([".".join(n.split(".")[:stop]) for stop in (1, 2)] for n in own)
    found = {name for both in parts for name in both}
    return {
        name for name in found if folder.joinpath(*name.split(".")).with_suffix(".py").is_file()
    }


def circle(graph):
    """Some nodes of a graph each of which leads to another of them; none if there is no circle."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1]
    return []


@pytest.mark.parametrize(
    ("folder", "prefix"),
    [("mhattn", "mhattn."), ("scripts/mhsite", "mhsite."), ("scripts", "")],
)
def test_there_is_no_import_circle(folder, prefix):
    folder = PACKAGE.parent / folder
    graph = {
        ".".join(file.relative_to(folder).with_suffix("").parts): imports_anywhere(
            file, folder, prefix
        )
        for file in folder.rglob("*.py")
        if file.stem != "__init__" and "node_modules" not in file.parts
    }
    assert any(graph.values())
    assert circle(graph) == []


def test_a_circle_is_seen(tmp_path):
    for name, code in {"a": "from x import b", "b": "import x.c", "c": "from x.a import f"}.items():
        (tmp_path / f"{name}.py").write_text(code, encoding="utf-8")
    graph = {n: imports_anywhere(tmp_path / f"{n}.py", tmp_path, "x.") for n in "abc"}
    assert sorted(set(circle(graph))) == ["a", "b", "c"]
    assert circle(graph | {"c": set()}) == []


@pytest.mark.parametrize("late", ["def f():\n    import x.b", "if TYPE_CHECKING:\n    import x.b"])
def test_a_late_import_closes_a_circle(tmp_path, late):
    for name, code in {"a": late, "b": "import x.a"}.items():
        (tmp_path / f"{name}.py").write_text(code, encoding="utf-8")
    graph = {n: imports_anywhere(tmp_path / f"{n}.py", tmp_path, "x.") for n in "ab"}
    assert sorted(set(circle(graph))) == ["a", "b"]


@every("module", MODULES)
def test_only_what_draws_imports_matplotlib(module):
    packages, _ = imported(module)
    assert ("matplotlib" in packages) == (module in DRAWING)


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("import mhattn", ["False", "False"]),
        ("import mhattn; mhattn.costs.attention_cost(8, 2, query_len=4)", ["False", "False"]),
        ("from mhattn.costs import known_model; known_model('gemma-2b')", ["False", "False"]),
        ("from mhattn.costs.layer_peaks import peak_activation_bytes", ["False", "False"]),
        ("from mhattn import attention", ["True", "False"]),
        ("from mhattn.show import write_gallery", ["True", "False"]),
        ("from mhattn import plot_heads", ["False", "True"]),
    ],
)
def test_what_an_import_loads(statement, expected):
    """Torch and matplotlib, in a fresh process."""
    code = f"import sys; {statement}; print('torch' in sys.modules, 'matplotlib' in sys.modules)"
    options = {"capture_output": True, "encoding": "utf-8", "check": True, "cwd": PACKAGE.parent}
    result = subprocess.run([sys.executable, "-c", code], **options)
    assert result.stdout.split() == expected


def test_the_package_knows_its_names_and_no_others():
    assert mhattn.core.causal_mask is mhattn.causal_mask
    assert set(mhattn.__all__) | set(FLOORS) <= set(dir(mhattn))
    with pytest.raises(AttributeError, match=r"^module 'mhattn' has no attribute 'atention'$"):
        mhattn.atention  # noqa: B018


def test_a_misspelt_name_gets_a_hint():
    code = "import mhattn.core; mhattn.core.causal_maks"
    options = {"capture_output": True, "encoding": "utf-8", "cwd": PACKAGE.parent}
    done = subprocess.run([sys.executable, "-c", code], **options)
    assert done.stderr.splitlines()[-1].endswith("Did you mean: 'causal_mask'?")


@pytest.mark.parametrize("door", DOORS)
def test_a_door_exports_what_its_modules_say_is_public(door):
    """All of it in a room, what is needed every day at the top; one room for each name."""
    package = importlib.import_module(door)
    folder = Path(package.__file__).parent
    public = {}
    for module in package.NAMES:
        public[module] = importlib.import_module(f"{door}.{module}").__all__
    assert package.__all__ == sorted(package.__all__)
    for module, names in package.NAMES.items():
        found = names.split()
        assert found == sorted(found)
        assert set(found) <= set(public[module])
        assert door == "mhattn" or len(found) == len(public[module])
        assert all(getattr(package, name) is not None for name in found)
    if door == "mhattn":
        assert len(package.__all__) <= 45
    else:
        files = {path.stem for path in folder.glob("*.py")} - {"__init__", "__main__"}
        for name in sorted(files - set(package.NAMES)):
            exported = importlib.import_module(f"{door}.{name}").__all__
            where = Path(package.__file__).relative_to(PACKAGE.parent)
            assert not exported, f"{where}: add {name!r} to NAMES, with {', '.join(exported)}"


def test_each_name_has_one_room():
    rooms = [name for door in DOORS[1:] for name in importlib.import_module(door).__all__]
    assert len(rooms) == len(set(rooms))
    assert set(mhattn.__all__) <= set(rooms)


@pytest.mark.parametrize("door", DOORS)
def test_type_checkers_see_what_a_door_exports(door):
    """The imports that only they read name the same as ``NAMES``."""
    package = importlib.import_module(door)
    tree = ast.parse(Path(package.__file__).read_text(encoding="utf-8"))
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    seen = [(node.module, alias.name) for node in block.body for alias in node.names]
    pairs = [(f"{door}.{m}", name) for m, names in package.NAMES.items() for name in names.split()]
    stars = [(f"{door}.{module}", "*") for module in package.NAMES]
    exported = pairs if door == "mhattn" else stars
    lacking = [f"from {module} import {name}" for module, name in set(exported) - set(seen)]
    assert not lacking, f"{package.__file__}: add these below TYPE_CHECKING"
    assert sorted(seen) == sorted(exported)


def public_objects():
    for module in MODULES:
        namespace = importlib.import_module(f"mhattn.{module}")
        for name in namespace.__all__:
            yield f"{module}.{name}", getattr(namespace, name)


def public_callables():
    for name_of_thing, thing in public_objects():
        if callable(thing):
            yield name_of_thing, thing
        if inspect.isclass(thing):
            for name, member in vars(thing).items():
                member = getattr(member, "__func__", member)
                inherited = any(hasattr(base, name) for base in thing.__mro__[1:])
                public = not name.startswith("_") and (not inherited or name == "forward")
                if public and inspect.isfunction(member):
                    yield f"{name_of_thing}.{name}", member


CALLABLES = dict(public_callables())


def section(doc, title):
    found = re.search(rf"^{title}:\n((?:    .*\n|\n)*)", inspect.cleandoc(doc) + "\n", re.M)
    return found and found[1]


@every("thing", CALLABLES.values())
def test_public_names_are_documented(thing):
    assert thing.__doc__
    doc = inspect.cleandoc(thing.__doc__)
    assert doc.splitlines()[0].endswith("."), "the first line is a sentence"
    parameters = [p for p in inspect.signature(thing).parameters if p not in ("self", "cls")]
    if hasattr(thing, "__dataclass_fields__") or hasattr(thing, "_fields"):  # a named tuple
        listed = section(doc, "Attributes") or ""
    else:
        listed = section(doc, "Args") or ""
    documented = re.findall(r"^    \*{0,2}(\w+):", listed, re.M)
    assert documented == parameters
    if inspect.isfunction(thing) and inspect.signature(thing).return_annotation is not None:
        assert section(doc, "Returns")
    if inspect.isfunction(thing) and parameters and thing.__name__ != "forward":
        assert section(doc, "Examples")


@every("thing", CALLABLES.values())
def test_help_says_what_an_argument_is(thing):
    """And does not send the reader to another docstring, which may send on."""
    listed = section(thing.__doc__, "Args") or ""
    assert re.findall(r"^    \*{0,2}(\w+): (?:as in|see) .*", listed, re.M) == []


@every("thing", CALLABLES.values())
def test_every_argument_and_result_has_a_type(thing):
    signature = inspect.signature(thing)
    missing = [
        name
        for name, parameter in signature.parameters.items()
        if name not in ("self", "cls") and parameter.annotation is parameter.empty
    ]
    assert not missing
    if inspect.isfunction(thing):
        assert signature.return_annotation is not signature.empty


def is_module(thing):
    return inspect.isclass(thing) and issubclass(thing, torch.nn.Module)


@every("thing", CALLABLES.values())
def test_errors_are_documented(thing):
    """A function that raises, or lets `checks` raise, says so."""
    code = inspect.getsource(thing.__init__ if is_module(thing) else thing)
    raised = set(re.findall(r"raise (\w+)", code)) - {"KeyError"}
    if re.search(r"\bcheck\.", code):
        raised.add("ValueError")
    listed = section(thing.__doc__, "Raises") or ""
    assert raised <= set(re.findall(r"^    (\w+):", listed, re.M))


@pytest.mark.parametrize("module", ["core.functional", "core.masks"])
def test_every_public_function_is_a_section_that_pages_can_show(module):
    source = file_of(module).read_text(encoding="utf-8")
    namespace = importlib.import_module(f"mhattn.{module}")
    sections = re.findall(r"-8<-- \[start:(\w+)\]\n(.*?)\n *# --8<-- \[end:\1\]\n", source, re.S)
    defined = re.findall(r"(?<!@overload\n)^def ([a-z]\w+)", source, re.M)
    assert [name for name, _ in sections] == defined
    assert {name for name, _ in sections} == set(namespace.__all__)
    for name, text in sections:
        source_of = inspect.getsource(getattr(namespace, name))
        assert text.strip() == re.sub(r"\n *# --8<--.*", "", source_of).strip()


def test_version_and_type_marker():
    assert re.match(r"\d+(\.\d+)*", mhattn.__version__)
    assert (PACKAGE / "py.typed").exists()


@every("module", MODULES)
def test_files_and_functions_are_short(module):
    """Lines of code, without docstrings, comments and blank lines."""
    source = file_of(module).read_text(encoding="utf-8")
    lines, tree = source.splitlines(), ast.parse(source)
    code = {i for i, line in enumerate(lines, 1) if line.strip() and line.strip()[0] != "#"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            code -= set(range(node.lineno, node.end_lineno + 1))
    assert len(code) <= 300
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            body = set(range(node.body[0].lineno, node.end_lineno + 1))
            assert len(code & body) <= 40, node.name


@pytest.mark.parametrize("command", ["check", "format --check"])
def test_style(command):
    ruff = [sys.executable, "-m", "ruff", *command.split(), PACKAGE.parent]
    done = subprocess.run(ruff, capture_output=True, encoding="utf-8")
    assert done.returncode == 0, done.stdout
