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
        except SyntaxError:
            self.all = True
            return
        self.changes = any(map(_changes, ast.walk(tree)))
        outside = "\n".join(ast.unparse(n) for n in tree.body if not isinstance(n, DEFINITIONS))
        seed, draw = SEEDS.search(outside), DRAWS.search(outside)
        self.draws = bool(DRAWS.search(source))
        self.seeds = bool(seed) and not (draw and draw.start() < seed.start())
        for node in ast.walk(tree):
            if isinstance(node, ast.Name):
                (self.reads if isinstance(node.ctx, ast.Load) else self.binds).add(node.id)
            elif isinstance(node, DEFINITIONS):
                self.binds.add(node.name)
            elif isinstance(node, ast.alias):
                self.binds.add((node.asname or node.name).split(".")[0])
                self.all |= node.name == "*"
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                self.calls.add(node.func.id)
        self.reads -= set(dir(builtins))
        self.inner = set(_globals(symtable.symtable(source, "<cell>", "exec"))) & self.reads
        modules = [n for n in ast.walk(tree) if isinstance(n, ast.Import | ast.ImportFrom)]
        self.modules = {(a.asname or a.name).split(".")[0] for n in modules for a in n.names}
        # A cell of definitions alone changes and draws nothing until somebody calls them.
        self.defines = {
            n.name: (any(map(_changes, ast.walk(n))), bool(DRAWS.search(ast.unparse(n))))
            for n in tree.body
            if isinstance(n, DEFINITIONS)
        }
        if len(self.defines) == len(tree.body) - len(modules):
            self.changes = self.draws = False


def _globals(table):
    """The names of the page that functions and classes within a table read."""
    for child in table.get_children():
        symbols = child.get_symbols()
        yield from (each.get_name() for each in symbols if each.is_global() or each.is_free())
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


def needed(sources, wanted):
    """The cells above one that it needs, in order: their numbers, counted from 0."""
    cells = [Cell(source) for source in sources[: wanted + 1]]
    modules = set().union(*(cell.modules for cell in cells if not cell.all))
    defined = {}
    for cell in cells:
        defined |= {} if cell.all else cell.defines
    defined = _through(defined, cells)
    found = []
    # Who calls a function sees what its names stand for by then.
    late = set().union(*(cell.inner for cell in cells if not cell.all)) - modules - set(defined)
    wants = _touched(cells[wanted], defined) | late
    for number in range(wanted - 1, -1, -1):
        cell = cells[number]
        if cell.all:
            found.append(number)
            continue
        changes, draws = _does(cell, defined)
        gives = set(cell.binds)
        if changes:
            gives |= cell.reads - modules - set(defined)
        if draws or cell.seeds:
            gives.add(DRAWN)
        if gives & wants or cells[wanted].all:
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
    _, draws = _does(cell, defined)
    return cell.reads | ({DRAWN} if draws and not cell.seeds else set())


def _does(cell, defined):
    """Whether a cell changes something in place, and whether it draws random numbers."""
    called = [defined[name] for name in cell.reads & set(defined) if name not in cell.defines]
    called += [defined[name] for name in cell.calls & set(cell.defines)]
    changes = cell.changes or any(changes for changes, _ in called)
    return changes, cell.draws or any(draws for _, draws in called)


def _through(defined, cells):
    """The same of functions that call functions."""
    reads = {name: cell.reads for cell in cells if not cell.all for name in cell.defines}
    for _ in defined:
        before = dict(defined)
        for name in defined:
            inner = [before[each] for each in reads.get(name, set()) & set(before)]
            defined[name] = tuple(any(kinds) for kinds in zip(before[name], *inner, strict=True))
        if defined == before:
            break
    return defined
