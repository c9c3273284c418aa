"""Judges answers to the tasks of pages as a reader's page does: `runner.Session` in plain Python,
with the stand-in for torch first in the path.

A program of its own, which `test_page_tasks.py` starts; with ``--real`` the same under torch. It
reads jobs as lines of JSON: ``cells`` of a page, and ``tasks``, each with ``above`` (how many cells
stand above its field), ``call`` and ``answers``. It writes what each answer was told, or with
``doctor``, a language, what the doctor says of its layer.
"""

import importlib.util
import json
import signal
import sys
import time
from pathlib import Path

import page_cells

HERE = Path(__file__).parent
CHANGED = []  # whether an attack made another answer, each time


def noted(attack):
    """An attack of which is known whether it changed anything."""

    def change(answer):
        made = attack(answer)
        CHANGED.append(made is not answer)
        return made

    return change


def answered(session, cells, call, answer):
    """What the field of a task tells: it runs what the answer needs above it, and judges."""
    start = time.process_time()
    CHANGED.clear()
    signal.alarm(page_cells.SECONDS)
    try:
        sources, failed = [*cells, f"{answer}\n{call}"], []
        for number in session.plan(sources, len(cells), False)[:-1]:
            result = session.run(number, sources[number], sources[number])
            if result["error"]:
                failed.append([number, result["error"]["type"], result["error"]["message"]])
        result = session.judge(answer, call, [call.partition("(")[0]])
        error = result["error"] or {}
        told = {
            "passed": result["passed"],
            "unwritten": result["unwritten"],
            "last": result["output"].rstrip().rpartition("\n")[2],
            "type": error.get("type"),
            "message": error.get("message"),
            "plain": error.get("plain"),
            "failed": failed,
            "differs": not CHANGED or any(CHANGED),
        }
    except page_cells.TooSlow as why:
        session.reset()
        told = {"slow": str(why)}
    signal.alarm(0)
    return told | {"seconds": round(time.process_time() - start, 2)}


def diagnosed(session, cells, call, answer, language):
    """What the doctor says of the layer that an answer makes; the task's test isn't asked."""
    sources = [*cells, answer]
    for number in session.plan(sources, len(cells), False)[:-1]:
        session.run(number, sources[number], sources[number])
    return session.examine(answer, call, language)


def judged(job, session):
    """Of each task, what each answer was told; by the doctor, in the language that a job names."""
    ask, more = (diagnosed, [job["doctor"]]) if "doctor" in job else (answered, [])
    return {
        task["name"]: {
            name: ask(session, job["cells"][: task["above"]], task["call"], answer, *more)
            for name, answer in task["answers"].items()
        }
        for task in job["tasks"]
    }


def main():
    page_cells.prepare(real="--real" in sys.argv, fast="--fast" in sys.argv)
    if "--real" in sys.argv:  # the runner, but torch itself
        sys.path.append(str(page_cells.PAGE))
    import torch
    from runner import Session

    # What changes the page's own solution: `test_solutions.py` does the same to it.
    about = importlib.util.spec_from_file_location("attacks", HERE / "attacks.py")
    sys.modules["attacks"] = importlib.util.module_from_spec(about)
    about.loader.exec_module(sys.modules["attacks"])
    sys.modules["attacks"].noted = noted
    for line in sys.stdin:
        job = json.loads(line)
        torch.set_default_dtype(torch.float32)  # what the page before has set
        torch.set_grad_enabled(True)
        print(json.dumps(judged(job, Session(job["said"]))), file=sys.__stdout__, flush=True)


if __name__ == "__main__":
    main()
