"""The solutions that the page from-memory counts, as the pages of their tasks show them.

    python tests/site/memory_table.py

writes them to docs/data/texts/from-memory.json; `test_from_memory` compares.
"""

import ast
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
import exercises

FILE = exercises.DOCS / "data" / "texts" / "from-memory.json"
TASKS = (
    "masks",
    "attention",
    "shapes",
    "block",
    "cross-attention",
    "masks-in-practice",
    "see-order/turned",
    "kv-cache",
    "grouped-query",
    "from-memory/sampling",
    "from-memory/merge",
    "online-softmax",
    "linear-attention",
    "latent-attention",
    "from-scratch/task",
    "from-scratch/rope",
)


def answer(task: exercises.Task) -> str:
    """The functions and classes of a solution, without the call of the test."""
    lines = task.cells[1].splitlines()
    made = [n for n in ast.parse(task.cells[1]).body if isinstance(n, exercises.DEFINED)]
    return "\n".join("\n".join(lines[n.lineno - 1 : n.end_lineno]) for n in made)


def solutions() -> dict[str, str]:
    named = {task.name: task for task in exercises.tasks()}
    return {name: answer(named[name]) for name in TASKS}


if __name__ == "__main__":
    text = json.dumps(solutions(), ensure_ascii=False, indent=1)
    FILE.write_text(text + "\n", encoding="utf-8")
