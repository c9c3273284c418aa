"""Which cells above one it needs: by the names that each binds, reads and may change.

In doubt a cell is needed. A cell that changes anything in place may change all that it reads; one
that calls a function of the page, what that function's body may. Random numbers are a name too:
who draws needs all who drew before, back to the last seed.
"""

import ast
import builtins
import re
import symtable

DRAWN = "random numbers"  # the name that stands for their state
DEFINITIONS = ast.FunctionDef | ast.ClassDef
SEEDS = re.compile(r"\bmanual_seed\(|\bseed\(")
DRAWS = re.compile(
    r"\brand|\bmultinomial\(|\bdropout|\bshuffle\(|\bsample\(|\bchoice|\b_?init\b"
    r"|\.(?:normal_|uniform_)\("
    r"|\b(?:nn\.)?[A-Z]\w*(?:Linear|Embedding|Attention|Model|Encoder|Layer|Block|LM|Net|Dropout)\w*\("
    r"|\bnn\.[A-Z]\w*\(|\.from_\w+\(|\b(?:Linear|Embedding|Dropout|Echo)\(|\btrain\w*\("
)
PURE = {*dir(builtins), "table", "print", "plot_weights", "plot_heads"} - {"next", "setattr"}
METHODS = {"manual_seed", "set_printoptions"}  # of modules: their state is no cell's


class Cell:
    """What one cell does with names."""

    def __init__(self, source):
        self.binds, self.reads, self.calls = set(), set(), set()
        self.inner = set()  # what its definitions read of the page when they are called
        self.all = False  # nobody knows what a cell does that can't be read
        try:
            tree = ast.parse(source)
            table = symtable.symtable(source, "<cell>", "exec")
        except Exception:  # also a sign that ends a text, or too many brackets
            self.all = True
            return
        self.changes = any(map(_changes, ast.walk(tree)))
        outside = "\n".join(ast.unparse(n) for n in tree.body if not isinstance(n, DEFINITIONS))
        seed, draw = SEEDS.search(outside), DRAWS.search(outside)
        self.draws = bool(DRAWS.search(source))
        self.seeds = bool(seed) and not (draw and draw.start() < seed.start())
        for node in ast.walk(tree):
            if isinstance(node, ast.alias):
                self.all |= node.name == "*"
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                self.calls.add(node.func.id)
        # What functions call their own is no name of the page.
        inner = list(_globals(table))
        self.inner = {each.get_name() for each in inner if each.is_referenced()}
        self.inner -= set(dir(builtins))
        for each in (*table.get_symbols(), *inner):
            if each.is_assigned() or each.is_imported() or each.is_namespace():
                self.binds.add(each.get_name())
            if each.is_referenced():
                self.reads.add(each.get_name())
        self.reads -= set(dir(builtins))
        modules = [n for n in ast.walk(tree) if isinstance(n, ast.Import | ast.ImportFrom)]
        self.modules = {(a.asname or a.name).split(".")[0] for n in modules for a in n.names}
        # A cell of definitions alone changes and draws nothing until somebody calls them.
        self.defines = {
            n.name: (any(map(_changes, ast.walk(n))), *_draws(n))
            for n in tree.body
            if isinstance(n, DEFINITIONS)
        }
        self.seeded = {n.name for n in tree.body if isinstance(n, DEFINITIONS) and _seeded(n)}
        if len(self.defines) == len(tree.body) - len(modules):
            self.changes = self.draws = False


def _draws(node):
    """Whether a definition draws random numbers, and whether it goes on from those before it."""
    draws = bool(DRAWS.search(ast.unparse(node)))
    return draws, draws and not _seeded(node)


def _seeded(node):
    """Whether a function begins with a seed, whatever it draws and calls after that."""
    first = node.body[1 if ast.get_docstring(node) else 0 :][:1]
    return isinstance(node, ast.FunctionDef) and any(map(_is_seed, first))


def _is_seed(node):
    return isinstance(node, ast.Expr) and bool(SEEDS.search(ast.unparse(node)))


def _globals(table):
    """The names of the page that functions and classes within a table read."""
    for child in table.get_children():
        yield from (each for each in child.get_symbols() if each.is_global())
        yield from _globals(child)


def _changes(node):
    """Whether a piece of code may change something in place."""
    if isinstance(node, ast.AugAssign | ast.Delete):
        return True
    if isinstance(node, ast.Attribute | ast.Subscript):
        return isinstance(node.ctx, ast.Store)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr.endswith("_") and not node.func.attr.endswith("__")
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        called = node.value.func
        if isinstance(called, ast.Attribute):
            return called.attr not in METHODS
        return getattr(called, "id", "") not in PURE
    return isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("next", "setattr")


def needed(sources, wanted, draws=True):
    """The cells above one that it needs, in order: their numbers, counted from 0.

    Args:
        sources: the code of each cell.
        wanted: the number of the cell.
        draws: whether it has to go on from the random numbers that the page has drawn by then;
            where an answer is judged, any others are as good.
    """
    cells = [Cell(source) for source in sources[: wanted + 1]]
    if cells[wanted].all:
        return list(range(wanted))
    modules = set().union(*(cell.modules for cell in cells if not cell.all))
    defined = {}
    for cell in cells:
        defined |= {} if cell.all else cell.defines
    defined = _through(defined, cells)
    late = set()
    while True:
        found = _found(cells, wanted, defined, modules, late, draws)
        # Who calls a function sees what its names stand for by then.
        reached = (cells[number] for number in (*found, wanted) if not cells[number].all)
        more = set().union(*(cell.inner for cell in reached)) - modules
        if more <= late:
            return found
        late |= more


def _found(cells, wanted, defined, modules, late, draws):
    found = []
    wants = _touched(cells[wanted], defined) | late
    if not draws:
        wants.discard(DRAWN)
    for number in range(wanted - 1, -1, -1):
        cell = cells[number]
        if cell.all:
            found.append(number)
            continue
        changes, drew, _ = _does(cell, defined)
        gives = set(cell.binds)
        if changes:
            gives |= cell.reads - modules - set(defined)
        if drew or cell.seeds:
            gives.add(DRAWN)
        if gives & wants:
            found.append(number)
            if cell.seeds:
                wants.discard(DRAWN)
            kept = cell.binds if not changes else set()
            wants = (wants - (kept - cell.reads)) | _touched(cell, defined)
            if cell.seeds:
                wants.discard(DRAWN)
    return found[::-1]


def _touched(cell, defined):
    if cell.all:
        return set()
    *_, goes_on = _does(cell, defined)
    return cell.reads | ({DRAWN} if goes_on and not cell.seeds else set())


def _does(cell, defined):
    """Whether a cell changes something in place, whether it draws random numbers, and whether
    these go on from what was drawn before.
    """
    called = [defined[name] for name in cell.reads & set(defined) if name not in cell.defines]
    called += [defined[name] for name in cell.calls & set(cell.defines)]
    own = cell.changes, cell.draws, cell.draws
    return tuple(any(kinds) for kinds in zip(own, *called, strict=True))


def _through(defined, cells):
    """The same of functions that call functions."""
    reads, seeded, plain = {}, set(), set()
    for cell in cells:
        if not cell.all:
            reads |= dict.fromkeys(cell.defines, cell.reads)
            seeded |= cell.seeded
            plain |= set(cell.defines) - cell.seeded
    for _ in defined:
        before = dict(defined)
        for name in defined:
            inner = [before[each] for each in reads.get(name, set()) & set(before)]
            *does, goes_on = (any(kinds) for kinds in zip(before[name], *inner, strict=True))
            defined[name] = (*does, goes_on and name not in seeded - plain)
        if defined == before:
            break
    return defined
