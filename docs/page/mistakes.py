"""Plain sentences for the mistakes that readers make most, in the words that a page hands over."""

import builtins
import difflib
import re
import sys

# Of each rule: the kind of error, what its message looks like (below a SyntaxError's stands its
# line), and the sentence's name. The first that fits is taken; what the pattern finds fills the
# sentence.
RULES = [
    ("IndentationError", r"expected an indented block", "block"),
    ("IndentationError|TabError", r"", "indent"),
    ("SyntaxError", r"'(?P<sign>[(\[{])' was never closed", "unclosed"),
    ("SyntaxError", r"unterminated", "unquoted"),
    ("SyntaxError", r"(?:unmatched|closing parenthesis) '(?P<sign>.)'", "closed"),
    ("SyntaxError", r"invalid character '(?P<sign>.)'", "sign"),
    ("SyntaxError", r"non-printable character", "blank"),
    ("SyntaxError", r"\n\s*[!%]", "command"),
    ("SyntaxError", r"\n\s*(?:>>>|\.\.\.) ", "prompt"),
    ("SyntaxError", r"\belse if\b", "elif"),
    ("SyntaxError", r"expected ':'", "colon"),
    ("SyntaxError", r"Missing parentheses in call to '(?P<name>\w+)", "call"),
    ("SyntaxError", r"meant ['\"]==|cannot assign to", "equals"),
    (
        "SyntaxError",
        r"'(?P<name>return|await|yield|break)' outside|'(?P<name2>continue)' not properly",
        "outside",
    ),
    ("SyntaxError", r"", "syntax"),
    ("NameError|UnboundLocalError", r"name '(?P<name>\w+)'|variable '(?P<name2>\w+)'", "name"),
    (
        "RuntimeError|ValueError",
        r"\((?P<a>\d+)x(?P<b>\d+) and (?P<c>\d+)x(?P<d>\d+)\)",
        "product",
    ),
    (
        "RuntimeError|ValueError",
        r"size of tensor a \((?P<a>\d+)\) must match the size of tensor b \((?P<b>\d+)\)"
        r".*dimension (?P<axis>-?\d+)",
        "broadcast",
    ),
    (
        "RuntimeError",
        r"expanded size of the tensor \((?P<a>\d+)\) must match the existing size \((?P<b>\d+)\)"
        r".*dimension (?P<axis>-?\d+)",
        "broadcast",
    ),
    ("RuntimeError", r"batch2 tensor to be: (?P<a>\[.*?\]) but got: (?P<b>\[.*?\])", "batches"),
    ("RuntimeError", r"mat \(\d+x(?P<a>\d+)\), vec \((?P<b>\d+)\)", "vector"),
    ("RuntimeError", r"expected tensor \[(?P<a>\d+)\] and src \[(?P<b>\d+)\]", "vectors"),
    ("RuntimeError", r"view size is not compatible", "order"),
    (
        "RuntimeError|ValueError",
        r"shape '\[(?P<shape>[-\d, ]*)\]' is invalid for input of size (?P<size>\d+)",
        "reshape",
    ),
    (
        "RuntimeError|ValueError",
        r"[Ss]izes of tensors must match|stack expects|same number of dimensions: got",
        "join",
    ),
    (
        "ValueError",
        r"expected sequence of length (?P<a>\d+) at dim (?P<axis>\d+) \(got (?P<b>\d+)\)",
        "ragged",
    ),
    ("RuntimeError|IndexError", r"argument #1 'indices'|used as indices must be", "indices"),
    (
        "RuntimeError|TypeError",
        r"dtype|scalar type|same type|result type|not implemented for '",
        "dtype",
    ),
    ("RuntimeError", r"converted to Scalar", "single"),
    ("RuntimeError", r"Boolean value of Tensor", "truth"),
    ("RuntimeError", r"does not require grad", "grad"),
    ("RuntimeError", r"backward through the graph a second time", "twice"),
    ("RuntimeError", r"implicitly created only for scalar", "loss"),
    ("RuntimeError", r"leaf Variable that requires grad", "leaf"),
    ("IndexError", r"[Dd]imension out of range", "axis"),
    ("IndexError", r"", "index"),
    ("KeyError", r"(?P<key>.*)", "key"),
    ("TypeError", r"missing \d+ required|takes \d+ positional|unexpected keyword", "arguments"),
    ("TypeError|AttributeError", r"\bNoneType\b", "none"),
    ("TypeError", r"'(?P<kind>\w+)' object is not callable", "callable"),
    ("TypeError", r"'(?P<kind>\w+)' object is not (?:subscriptable|iterable)", "parts"),
    ("TypeError", r"indices must be integers", "whole"),
    ("TypeError", r"unsupported operand|can only concatenate", "combine"),
    ("TypeError|ValueError", r"[Ff]ormat (?:code|string)", "format"),
    (
        "ImportError",
        r"cannot import name '(?P<name>\w+)' from '(?P<module>[\w.]+)'",
        "import",
    ),
    ("ModuleNotFoundError|ImportError", r"named '(?P<name>[\w.]+)'", "module"),
    ("RuntimeError|Lacking", r"devices cpu and meta|Tensor\.cuda\b", "device"),
    ("Lacking", r"torch\.(?P<name>\w+(?:\.\w+)*) is not in", "absent"),
    ("NotImplementedError", r'required "forward"', "forward"),
    ("NotImplementedError|Lacking", r"", "lacking"),
    ("AttributeError", r"before Module.__init__", "super"),
    ("AttributeError", r"has no attribute '(?P<name>\w+)'", "attribute"),
    ("ValueError", r"unpack", "unpack"),
    ("ZeroDivisionError", r"", "zero"),
    ("RecursionError", r"", "recursion"),
    ("MemoryError", r"", "memory"),
    ("OverflowError", r"index-sized|too large to convert", "memory"),
    ("OverflowError", r"", "overflow"),
    ("OSError|EOFError", r"Errno 29|EOF when reading", "input"),
    (
        "OSError|RuntimeError",
        r"start new thread|not support processes|TLS not supported|urlopen error",
        "alone",
    ),
    ("SystemExit", r"", "exit"),
    ("AssertionError", r"^$", "assert"),
    ("FileNotFoundError", r"", "file"),
    ("OSError", r"", "file"),
    ("RuntimeError", r"characters were printed", "printed"),
    ("RuntimeError|ValueError|IndexError", r"numel\(\) == 0|empty (?:tensor|seq)", "empty"),
    ("TypeError", r"", "type"),
    ("Exception", r"", "other"),
]


def explained(error, said, names=()):
    """The sentence for an error; empty if none fits."""
    kinds = {kind.__name__ for kind in type(error).__mro__}
    message = str(getattr(error, "msg", None) or error)
    if isinstance(error, SyntaxError):
        message += f"\n{error.text or ''}"
    for wanted, pattern, sentence in RULES:
        found = re.search(pattern, message, re.S)
        if not found or kinds.isdisjoint(wanted.split("|")) or sentence not in said:
            continue
        parts = {name: text for name, text in found.groupdict().items() if text is not None}
        parts["name"] = parts.get("name", parts.pop("name2", ""))
        near = [name for name in _near(error, sentence, parts, names) if name != parts["name"]]
        more = said["near"].format(name=near[0]) if near and "near" in said else ""
        return said[sentence].format(**parts) + more
    return ""


def _near(error, sentence, parts, names):
    """What a reader may have meant who misspelt a name."""
    name = parts["name"]
    if sentence == "name":
        near = difflib.get_close_matches(name, [*map(str, names)], 1)
        return near or difflib.get_close_matches(name, dir(builtins), 1, 0.7)
    if sentence == "attribute":
        return difflib.get_close_matches(name, _public(getattr(error, "obj", None)), 1)
    if sentence == "import":
        return difflib.get_close_matches(name, _public(sys.modules.get(parts["module"])), 1)
    if sentence == "absent":
        *owners, name = name.split(".")
        owner = sys.modules.get("torch")
        for each in owners:
            owner = getattr(owner, each, None)
        near = [each for each in _public(owner) if each != name]
        return difflib.get_close_matches(name, near, 1, 0.75)
    return []


def _public(thing):
    return [] if thing is None else [name for name in dir(thing) if not name.startswith("_")]
