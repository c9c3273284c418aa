"""Runs the cells of a page as a notebook does, and judges what a reader wrote for a task.

Plain Python that knows nothing of a browser: cells come as texts, and what came out goes back as
dictionaries that JSON can carry. `mistakes` has the plain sentences for what often goes wrong.
"""

import ast
import builtins
import copy
import io
import linecache
import random
import sys
import time
from contextlib import redirect_stderr, redirect_stdout, suppress

import mistakes
import needs

MOST = 200_000  # characters that a cell may print; a loop that prints has no end
TICKS = "__ticking__"  # what a loop over a range goes through
SLOW = 0.3  # seconds: a state that takes longer to copy is made anew instead


class Ticking(ast.NodeTransformer):
    """Has each loop over a range say how far it is."""

    def visit_For(self, node):
        self.generic_visit(node)
        if isinstance(node.iter, ast.Call) and getattr(node.iter.func, "id", "") == "range":
            name = ast.Name(TICKS, ast.Load())
            call = ast.copy_location(ast.Call(name, [node.iter], []), node.iter)
            node.iter = ast.fix_missing_locations(call)
        return node


class Printed(io.StringIO):
    """What a cell prints; too much of it is an error of the cell."""

    def write(self, text):
        if self.tell() + len(text) > MOST:
            raise RuntimeError(f"more than {MOST} characters were printed")
        return super().write(text)


class Session:
    """The state of a page whose cells ran from top to bottom.

    Args:
        said: the sentences of `mistakes`, in the reader's language.
        recorder: an object with ``start()`` and ``taken(names)``, which says what a cell drew
            and showed; None where nothing draws.
        tell: called about every second of a loop over a range, with the steps that are done, how
            many there are, and the seconds that they took.
    """

    def __init__(self, said=None, recorder=None, tell=None):
        self.said, self.recorder, self.seeds = said or {}, recorder, _seeds()
        self.tell, self.counts = tell, False
        self.reset()

    def reset(self):
        """Back to the page's own beginning: nothing has run."""
        self.names = {"__name__": "__main__"}
        self.ran = []  # the cells that ran: of each its place on the page, and its code
        self.before = []  # of each cell that ran, the state before it; None: not kept
        self.keeps = True
        _seed(self.seeds)

    def plan(self, sources, wanted, draws=True):
        """Go back to the state that a cell needs, and say which cells have to run, it as the last.

        Of those above, it needs what `needs` says; what ran as it is now stays as it is. An answer
        that is judged goes on from any random numbers: not ``draws``.
        """
        wants = [*needs.needed(sources, wanted, draws), wanted]
        kept = 0
        for number, source in self.ran:
            if number >= wanted or source != sources[number]:
                break
            kept += 1
        there = {number for number, _ in self.ran[:kept]}
        first = min(number for number in wants if number not in there)
        while kept and self.ran[kept - 1][0] > first:  # it ran too early
            kept -= 1
        if kept < len(self.ran):
            state = self.before[kept]
            if state is None:
                self.reset()
                return wants
            self._restore(state)
            del self.ran[kept:], self.before[kept:]
        there = {number for number, _ in self.ran}
        return [number for number in wants if number not in there]

    def run(self, number, source, own=None, changed=()):
        """Run a cell that `plan` named.

        Args:
            number: its place on the page, from 0.
            source: its code as the reader left it.
            own: its code as the page has it. The value of a last expression that is the
                reader's own is shown, as in a notebook.
            changed: the cells above that the reader changed: of each its place, its code as the
                page has it, and as it is now.

        Returns:
            ``output``, ``error`` or None, ``drawn``, ``seconds``. An error by a name that one of
            ``changed`` no longer gives says so, and has that cell's place as ``taken``.
        """
        self.before.append(self._state())
        self.ran.append((number, source))
        result = self._execute(source, f"<cell {number + 1}>", own)
        if result["error"]:
            self._blame(result["error"], changed)
        if result["error"] and own is not None and source != own:
            self.ran[-1] = (
                number,
                None,
            )  # it runs again before the next; what the page itself lacks doesn't
        return result

    def judge(self, answer, call, keep=()):
        """Let the page's test judge an answer, and go back to the state before.

        Args:
            answer: the reader's code.
            call: the call of the page's test, such as ``test(average)``.
            keep: names that the answer must not change, such as that of the test.

        Returns:
            As `run`, with ``passed``; ``unwritten`` names what the answer lacks.
        """
        before = self._state() or (dict(self.names), _seeds())
        kept = {name: self.names[name] for name in keep if name in self.names}
        arguments = [ast.unparse(each) for each in ast.parse(call, mode="eval").body.args]
        # What an earlier cell, or the page's own solution, bound must not stand in for the answer.
        bound = _bound(answer)
        missing = [name for name in arguments if name.isidentifier() and name not in bound]
        try:
            result = self._execute(answer, "<answer>", answer)
            result |= {"passed": False, "unwritten": []}
            if result["error"] is None and missing:
                result["unwritten"] = missing
            elif result["error"] is None:
                self.names.update(kept)
                judged = self._execute(call, "<test>", call, "<answer>")
                result["output"] += judged["output"]
                result["seconds"] += judged["seconds"]
                result["error"] = judged["error"]
                result["passed"] = judged["error"] is None
            return result
        finally:
            self._restore(before)

    def examine(self, answer, call, language):
        """What the doctor says of the layer that an answer makes; then back to the state before.

        Args:
            answer: the reader's code.
            call: the call of the page's test, one of those in `layers`.
            language: of what the doctor says.

        Returns:
            As `layers.told`; or ``failed``, the error that the layer raised.
        """
        import layers

        before = self._state() or (dict(self.names), _seeds())
        try:
            result = self._execute(answer, "<answer>", answer)
            if result["error"]:
                return {"failed": "{type}: {message}".format(**result["error"])}
            made = self.names[ast.unparse(ast.parse(call, mode="eval").body.args[0])]
            with redirect_stdout(Printed()):
                return layers.told(call, made, language)
        except Exception as why:
            return {"failed": f"{type(why).__name__}: {why}"}
        finally:
            self._restore(before)

    def _execute(self, source, name, own, blamed=None):
        """Run some code; of an error, the line in the file that is ``blamed``, else in this one."""
        linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
        printed, error, self.counts = Printed(), None, False
        setattr(builtins, TICKS, self._ticking)
        if self.recorder:
            self.recorder.start()
        start = time.perf_counter()
        with redirect_stdout(printed), redirect_stderr(printed):  # warnings as well
            try:
                tree = ast.parse(source, name)
                shown = _shown(tree, source if own is None else own)
                if self.tell:
                    tree = Ticking().visit(tree)
                exec(compile(tree, name, "exec"), self.names)
                if shown is not None:
                    value = eval(compile(shown, name, "eval"), self.names)
                    if value is not None:
                        print(repr(value))
            except BaseException as why:
                error = self._error(why, blamed or name)
        seconds = time.perf_counter() - start
        drawn = self.recorder.taken(self.names) if self.recorder else None
        return {
            "output": printed.getvalue(),
            "error": error,
            "drawn": drawn,
            "seconds": round(seconds, 3),
        }

    def _ticking(self, loop):
        """The steps of a loop, of which the outermost says how far it is."""
        if self.counts or not isinstance(loop, range):
            return loop
        return self._told(loop)

    def _told(self, loop):
        self.counts, start = True, time.perf_counter()
        last = start
        try:
            for done, step in enumerate(loop):
                now = time.perf_counter()
                if done and now - last >= 1:
                    self.tell(done, len(loop), now - start)
                    last = now
                yield step
        finally:
            self.counts = False

    def _blame(self, error, changed):
        """Name the changed cell that gave the page what an error lacks."""
        lost = error.pop("lost")
        for number, own, now in changed:
            if lost and lost in _bound(own) - _bound(now) and "taken" in self.said:
                error["plain"] += self.said["taken"].format(number=number + 1)
                error["taken"] = number

    def _error(self, why, name):
        """An error with the last line of the cell that it came by, and a plain sentence."""
        line = None
        if isinstance(why, SyntaxError) and why.filename == name:
            line = why.lineno
        else:
            trace = why.__traceback__
            while trace is not None:
                if trace.tb_frame.f_code.co_filename == name:
                    line = trace.tb_lineno
                trace = trace.tb_next
        kind = type(why).__name__
        return {
            "line": line,
            "type": kind,
            "message": str(why.msg if isinstance(why, SyntaxError) else why),
            "plain": mistakes.explained(why, self.said, self.names),
            "lost": why.name if isinstance(why, NameError) else None,
        }

    def _state(self):
        """A copy of all that the cells share; None where that takes too long or can't be."""
        if not self.keeps:
            return None
        start = time.perf_counter()
        modules = {id(each): each for each in self.names.values() if _is_module(each)}
        # Functions are copied as they are: their globals are the one dictionary of the page.
        try:
            names = copy.deepcopy(
                {k: v for k, v in self.names.items() if k != "__builtins__"}, modules
            )
        except Exception:
            self.keeps = False
            return None
        if time.perf_counter() - start > SLOW:
            self.keeps = False
        return names, _seeds()

    def _restore(self, state):
        names, seeds = state
        modules = {id(each): each for each in names.values() if _is_module(each)}
        with suppress(Exception):  # the copy stays whole, for the next time
            names = copy.deepcopy(names, modules)
        self.names.clear()
        self.names.update(names)
        _seed(seeds)


def _is_module(value):
    return isinstance(value, type(sys))


def _bound(code):
    """The names that some code binds at its top level; of code that can't be read, none."""
    try:
        body = ast.parse(code).body
    except SyntaxError:
        return set()
    found = set()
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        else:
            stored = (each for each in ast.walk(node) if isinstance(each, ast.Name))
            found |= {each.id for each in stored if isinstance(each.ctx, ast.Store)}
            imported = (each for each in ast.walk(node) if isinstance(each, ast.alias))
            found |= {(each.asname or each.name).split(".")[0] for each in imported}
    return found


def _shown(tree, own):
    """Take the last expression out of a cell, if it is the reader's and not a call that prints."""
    if not tree.body or not isinstance(tree.body[-1], ast.Expr):
        return None
    last = tree.body[-1]
    try:
        there = {ast.dump(node) for node in ast.parse(own).body}
    except SyntaxError:
        there = set()
    if ast.dump(last) in there:
        return None
    del tree.body[-1]
    return ast.Expression(last.value)


def _seeds():
    """Where the random numbers of Python and torch stand."""
    torch = sys.modules.get("torch")
    drawn = torch.get_rng_state() if hasattr(torch, "get_rng_state") else None
    return random.getstate(), drawn


def _seed(seeds):
    """Let random numbers go on from there."""
    random.setstate(seeds[0])
    if seeds[1] is not None:
        sys.modules["torch"].set_rng_state(seeds[1])
