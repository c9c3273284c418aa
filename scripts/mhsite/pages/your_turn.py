"""The reader's own cell: the head of what a task asks for, before its solution."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mhsite import words
from mhsite.pages.page import Block, Page


def cells(page: Page) -> dict[int, str]:
    """The cell that stands before each solution, by the line where its fold begins."""
    return dict(_cells(page.blocks, page.language, set()))


def _cells(blocks: tuple[Block, ...], language: str, taken: set[str]) -> Iterator[tuple[int, str]]:
    task = None
    for block in blocks:
        if block.kind == "block" and block.value == "task":
            task = block
        elif task and block.kind == "block" and block.value == "details":
            if stub := _stub(task, block, language, taken):
                yield block.line, stub
            task = None
        else:
            yield from _cells(block.blocks, language, taken)
        taken |= {name for code in _code(block) for name in _defined(code)}


def _code(block: Block) -> list[str]:
    shown = [block] if block.kind == "include" else block.walk()
    return [each.section.code for each in shown if each.kind == "include"]


def _defined(code: str) -> dict[str, ast.stmt]:
    """What names a piece of code gives, each with its last statement that does so."""
    found: dict[str, ast.stmt] = {}
    for line in ast.parse(code).body:
        if isinstance(line, ast.FunctionDef | ast.ClassDef):
            found[line.name] = line
        elif isinstance(line, ast.Assign):
            found |= {t.id: line for t in line.targets if isinstance(t, ast.Name)}
    return found


def _stub(task: Block, solution: Block, language: str, taken: set[str]) -> str:
    """The heads of what the solution hands to the task's test, and the test as a comment."""
    tests = {name for code in _code(task) for name in _defined(code)}
    own = {name: line for code in _code(solution) for name, line in _defined(code).items()}
    for code in _code(solution):
        for line in ast.parse(code).body:
            call = line.value if isinstance(line, ast.Expr) else None
            if not isinstance(call, ast.Call) or ast.unparse(call.func) not in tests:
                continue
            wanted = [name for name in map(ast.unparse, call.args) if name in own]
            if not wanted:
                return ""
            heads = [_head(name, own[name]) for name in wanted]
            # A name that earlier cells gave keeps what it stands for until the reader changes it.
            if taken & {*wanted}:
                heads = ["\n".join(f"# {line}" for line in head.split("\n")) for head in heads]
            said = f"# {words.of(language, 'notebook.your_turn')}"
            return "\n\n\n".join([said, *heads, f"# {ast.unparse(call)}"])
    return ""


def _head(name: str, line: ast.stmt) -> str:
    if isinstance(line, ast.FunctionDef):
        return f"def {name}({ast.unparse(line.args)}):\n    ..."
    if isinstance(line, ast.ClassDef):
        bases = ", ".join(map(ast.unparse, line.bases))
        return f"class {name}({bases}):\n    ..." if bases else f"class {name}:\n    ..."
    return f"{name} = ..."
