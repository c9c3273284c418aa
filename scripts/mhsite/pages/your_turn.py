"""The reader's own cell: the head of what a task asks for, before its solution.

In a notebook and a script the solution steps in only while that cell is as it was found, so that
whoever runs all cells is judged, and goes on, with what they wrote.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator

from mhsite import words
from mhsite.pages.page import Block, Page


def cells(page: Page) -> dict[int, str]:
    """The cell that stands before each solution, by the line where its fold begins."""
    return dict(_cells(page.blocks, page.language))


def unwritten(name):
    answer = globals().get(name, ...)

    def blank(): ...

    class Blank: ...

    if isinstance(answer, type):
        return vars(answer).keys() <= vars(Blank).keys()
    code = getattr(answer, "__code__", None)
    return answer is ... or (code and code.co_code) == blank.__code__.co_code


def helper(language: str) -> str:
    """The cell that says whether the reader has written anything yet."""
    return f"# {words.of(language, 'notebook.unwritten')}\n{inspect.getsource(unwritten)}"


def stepping_in(code: str, stub: str, language: str) -> str:
    """A solution's code, of which what answers the task runs only while its own cell is empty.

    What comes before the call of the test answers it, but for imports and calls, such as that of a
    seed. The test, and what follows, takes the answer that is there. A helper is defined where the
    reader has none of its name: later solutions may call it.
    """
    call, lines = stub.split("\n\n\n")[-1].removeprefix("# "), code.split("\n")
    body = ast.parse(code).body
    stop = next((i for i, line in enumerate(body) if ast.unparse(line) == call), 0)
    made, end, before = [], 0, ""
    for line in body[:stop]:
        start, name = end, getattr(line, "name", "")
        end = line.end_lineno
        if isinstance(line, ast.Import | ast.ImportFrom | ast.Expr):  # an answer is none of these
            made, before = [*made, *lines[start:end]], ""
            continue
        asked = " and ".join(f'unwritten("{x}")' for x in ([name] if name else _defined(stub)))
        while not lines[start]:
            made, start = [*made, ""], start + 1
        if "if unwritten" not in "\n".join(made):
            made.append(f"# {words.of(language, 'notebook.solution')}")
        if asked != before:
            made.append(f"if {asked}:")
        made += [f"    {each}".rstrip() for each in lines[start:end]]
        before = asked
    if made and lines[end]:
        made.append("")
    return "\n".join([*made, *lines[end:]])


def _cells(blocks: tuple[Block, ...], language: str) -> Iterator[tuple[int, str]]:
    task = None
    for block in blocks:
        if block.kind == "block" and block.value == "task":
            task = block
        elif task and block.kind == "block" and block.value == "details":
            if stub := _stub(task, block, language):
                yield block.line, stub
            task = None
        else:
            yield from _cells(block.blocks, language)


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


def _stub(task: Block, solution: Block, language: str) -> str:
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
