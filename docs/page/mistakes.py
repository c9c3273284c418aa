"""Plain sentences for the mistakes that readers make most, in the words that a page hands over."""

import difflib
import re

# Of each rule: the kind of error, what its message looks like, and the sentence's name. The first
# that fits is taken; what the pattern finds fills the sentence.
RULES = [
    ("IndentationError|TabError", r"", "indent"),
    ("SyntaxError", r"'(?P<sign>[(\[{])' was never closed", "unclosed"),
    ("SyntaxError", r"unterminated", "unquoted"),
    ("SyntaxError", r"expected ':'", "colon"),
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
        "RuntimeError|ValueError",
        r"shape '\[(?P<shape>[-\d, ]*)\]' is invalid for input of size (?P<size>\d+)",
        "reshape",
    ),
    ("RuntimeError|ValueError", r"[Ss]izes of tensors must match|stack expects", "join"),
    ("RuntimeError|TypeError", r"dtype|scalar type|same type|result type", "dtype"),
    ("IndexError", r"[Dd]imension out of range", "axis"),
    ("IndexError", r"", "index"),
    ("KeyError", r"(?P<key>.*)", "key"),
    ("TypeError", r"missing \d+ required|takes \d+ positional|unexpected keyword", "arguments"),
    ("TypeError|AttributeError", r"\bNoneType\b", "none"),
    ("ModuleNotFoundError|ImportError", r"named '(?P<name>[\w.]+)'", "module"),
    ("NotImplementedError|Lacking", r"", "lacking"),
    ("AttributeError", r"has no attribute '(?P<name>\w+)'", "attribute"),
    ("ValueError", r"unpack", "unpack"),
    ("ZeroDivisionError", r"", "zero"),
    ("RecursionError", r"", "recursion"),
    ("MemoryError", r"", "memory"),
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
    for wanted, pattern, sentence in RULES:
        found = re.search(pattern, message, re.S)
        if not found or kinds.isdisjoint(wanted.split("|")) or sentence not in said:
            continue
        parts = {name: text for name, text in found.groupdict().items() if text is not None}
        parts["name"] = parts.get("name", parts.pop("name2", ""))
        text = said[sentence].format(**parts)
        near = (
            difflib.get_close_matches(parts["name"], [*map(str, names)], 1) if parts["name"] else []
        )
        if sentence == "name" and near and "near" in said:
            text += said["near"].format(name=near[0])
        return text
    return ""
