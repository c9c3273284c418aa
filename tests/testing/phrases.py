"""The phrases that reports are made of, read from the source of the checks."""

import ast
import re
from pathlib import Path

import mhattn.testing

HOME = Path(mhattn.testing.__file__).parent
# What these modules say stands in errors, on the command line or in files: never in a report.
ELSEWHERE = {
    "__init__",
    "__main__",
    "columns",
    "formats",
    "language",
    "pytest_plugin",
    "rotations",
    "shrunk",
    "targets",
    "tiny",
}
NOT_SAID = {
    "lower right",  # values of arguments
    "upper left",
    "mask of a batch",  # a key
    "eval(), no_grad()",  # code
    "True, False or {}",  # in an error
}
TABLES = {"SECTIONS"}  # how names of mistakes begin, to find their pages
SEARCHES = {"startswith", "endswith", "split", "partition"}
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef)


def normal(text: str) -> list[str]:
    """The clauses of a text, a placeholder where it is put together with another one."""
    clauses = []
    for clause in text.split("; "):
        before = "{}" if re.match(r"[ ,:]", clause) else ""
        clauses.append(f"{before}{clause}" + "{}" * clause.endswith(" "))
    return [clause for clause in clauses if re.search(r"[A-Za-z]{2}", clause)]


def needs_words(phrase: str) -> bool:
    """Whether a phrase has two words or more, and is no code."""
    return len(re.findall(r"[A-Za-z]{2,}", phrase)) > 1 and " " in phrase and phrase not in NOT_SAID


class Reader(ast.NodeVisitor):
    """Collects the phrases of a module, and where each of them stands."""

    def __init__(self, constants: dict[str, str]) -> None:
        self.constants = constants
        self.phrases: dict[str, int] = {}

    def note(self, text: str, line: int) -> None:
        for phrase in normal(text):
            self.phrases.setdefault(phrase, line)

    def visit(self, node: ast.AST) -> None:
        if isinstance(node, DOCUMENTED) and (text := ast.get_docstring(node)):
            if any("check(" in ast.unparse(each) for each in getattr(node, "decorator_list", [])):
                self.note(text.splitlines()[0], node.lineno)  # `Check.says`: what holds
            del node.body[0]
        super().visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        # An error of the caller's is told in English; why a check is skipped stands in the report.
        if node.exc and "Skip" in ast.unparse(node.exc):
            self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        if ast.unparse(node.targets[0]) not in TABLES:
            self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        """What a text is searched for is no text of its own."""

    def visit_Call(self, node: ast.Call) -> None:
        if getattr(node.func, "attr", "") not in SEARCHES:
            self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str):
            self.note(node.value, node.lineno)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        text = ""
        for part in node.values:
            if isinstance(part, ast.Constant):
                text += str(part.value)
            else:
                value = part.value if isinstance(part, ast.FormattedValue) else part
                text += self.constants.get(ast.unparse(value), "{}")
                self.visit(value)
        self.note(text, node.lineno)


def modules(home: Path = HOME) -> list[Path]:
    return [path for path in sorted(home.glob("*.py")) if path.stem not in ELSEWHERE]


def constants(paths: list[Path]) -> dict[str, str]:
    """The texts that modules give a name, as ``KNOWN``."""
    named = {}
    for path in paths:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
                named[ast.unparse(node.targets[0])] = node.value.value
    return {name: text for name, text in named.items() if isinstance(text, str)}


def phrases(home: Path = HOME) -> dict[str, str]:
    """Every phrase, and the file and line where it stands."""
    paths, found = modules(home), dict[str, str]()
    for path in paths:
        reader = Reader(constants(paths))
        reader.visit(ast.parse(path.read_text(encoding="utf-8")))
        for phrase, line in reader.phrases.items():
            found.setdefault(phrase, f"{path.name}:{line}")
    return found
