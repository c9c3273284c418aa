"""Functions of the package as JavaScript: a page counts with the very formulas of Python.

Understood is what arithmetic with integers needs, which become BigInts: assignments, conditions,
fields, calls of one another, min, max and sum, f-strings in errors. Anything else stops the build.
"""

from __future__ import annotations

import ast
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mhattn.costs import (
    ModelSizes,
    known_accelerator,
    known_accelerators,
    known_model,
    known_models,
)
from mhsite.stories.source import ROOT, SourceError

HELPERS = """\
const floorDiv = (a, b) => (a - mod(a, b)) / b
const mod = (a, b) => ((a % b) + b) % b
const min = (...all) => all.reduce((a, b) => (b < a ? b : a))
const max = (...all) => all.reduce((a, b) => (b > a ? b : a))
const typeName = x => ({ bigint: "int", number: "float", string: "str", boolean: "bool" })[typeof x]
"""
TYPES = {"int": "bigint", "bool": "boolean"}
OPERATORS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*"}
COMPARED = {ast.Lt: "<", ast.Gt: ">", ast.LtE: "<=", ast.GtE: ">=", ast.Eq: "===", ast.NotEq: "!=="}
COMPARED |= {ast.Is: "===", ast.IsNot: "!=="}


# Functions of each module; none named: all of them.
COUNTED = {
    "integers": ["at_least", "divides"],
    "model_costs": ["visible_pairs", "query_weights", "latent_weights", "check_layer"],
    "kind_costs": [],
    "layer_sizes": ["mlp_weights", "mlps_met", "unmet_parts"],
    "serving": [],
}
# Numbers of the tables become BigInts, as those of the functions are.
EXACT = """\
const exact = x => {
  if (Array.isArray(x)) return x.map(exact)
  if (typeof x === "number") return BigInt(x)
  const fields = () => Object.entries(x).map(([name, of]) => [name, exact(of)])
  return x && typeof x === "object" ? Object.fromEntries(fields()) : x
}
"""


def costs() -> str:
    """The module costs.js: `mhattn.costs.serving`, the known models and accelerators."""
    folder = ROOT / "mhattn" / "costs"
    code = translated({folder / f"{name}.py": names for name, names in COUNTED.items()})
    models = [model_sizes(known_model(name)) for name in known_models()]
    names = ("name", "title", "memory", "bandwidth", "flops")
    chips = [
        {name: getattr(known_accelerator(chip), name) for name in names}
        for chip in known_accelerators()
    ]
    tables = {"MODELS": models, "DEVICES": chips}
    exports = [f"export const {name} = exact({json.dumps(of)})" for name, of in tables.items()]
    return "\n".join([code, EXACT, *exports, ""])


def model_sizes(model: ModelSizes) -> dict[str, Any]:
    """What the calculator needs of a model; what its sources don't say is null."""
    names = ("name", "kind", "embed_dim", "vocabulary", "tied", "learned_positions")
    sizes = {name: getattr(model, name) for name in (*names, "published_parameters")}
    return sizes | {"mlp": model.mlp and asdict(model.mlp), "kinds": model.kind_sizes()}


def translated(sources: dict[Path, list[str]]) -> str:
    """A module that exports these functions of these files."""
    parts = [HELPERS]
    for path, names in sources.items():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        found = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
        for name in names or found:
            if name not in found:
                raise SourceError(f"there is no function {name}", path)
            parts.append(_Translator(path).function(found[name]))
    return "\n".join(parts)


class _Translator:
    def __init__(self, path: Path):
        self.path = path

    def function(self, node: ast.FunctionDef) -> str:
        if node.args.vararg or node.args.kwarg or node.args.posonlyargs:
            raise self.error(node)
        plain = self.parameters(node.args.args, node.args.defaults)
        named = self.parameters(node.args.kwonlyargs, node.args.kw_defaults)
        plain += [f"{{ {', '.join(named)} }}"] * bool(named)
        taken = {argument.arg for argument in node.args.args + node.args.kwonlyargs}
        stored = [part for part in ast.walk(node) if isinstance(part, ast.Name)]
        local = {part.id for part in stored if isinstance(part.ctx, ast.Store)} - taken
        lines = [f"  let {', '.join(sorted(local))}"] * bool(local)
        body = node.body[1:] if ast.get_docstring(node) is not None else node.body
        lines += self.block(body, "  ")
        return "\n".join([f"export function {node.name}({', '.join(plain)}) {{", *lines, "}", ""])

    def parameters(self, arguments: list[ast.arg], defaults: list) -> list[str]:
        defaults = [None] * (len(arguments) - len(defaults)) + defaults
        return [
            argument.arg + (f" = {self.value(default)}" if default else "")
            for argument, default in zip(arguments, defaults, strict=True)
        ]

    def block(self, body: list[ast.stmt], indent: str) -> list[str]:
        return [line for node in body for line in self.statement(node, indent)]

    def statement(self, node: ast.stmt, indent: str) -> list[str]:
        match node:
            case ast.Assign(targets=[ast.Name(name)]):
                return [f"{indent}{name} = {self.value(node.value)}"]
            case ast.AugAssign(target=ast.Name(name)) if type(node.op) in OPERATORS:
                return [f"{indent}{name} {OPERATORS[type(node.op)]}= {self.value(node.value)}"]
            case ast.Expr(ast.Call()):
                return [indent + self.value(node.value)]
            case ast.Return(ast.expr()):
                return [f"{indent}return {self.value(node.value)}"]
            case ast.Raise(ast.Call(ast.Name(), [text])):
                return [f"{indent}throw new RangeError({self.value(text)})"]
            case ast.If(orelse=[]) | ast.If(orelse=[_, *_]):
                lines = [f"{indent}if ({self.value(node.test)}) {{"]
                lines += self.block(node.body, indent + "  ")
                if node.orelse:
                    lines += [indent + "} else {", *self.block(node.orelse, indent + "  ")]
                return [*lines, indent + "}"]
        raise self.error(node)

    def value(self, node: ast.expr) -> str:
        match node:
            case ast.Constant(None):
                return "null"
            case ast.Constant(str(text)):
                return json.dumps(text)
            case ast.Constant(bool(truth)):
                return str(truth).lower()
            case ast.Constant(int(number)):
                return f"{number}n"
            case ast.Name(name):
                return name
            case ast.UnaryOp(ast.USub()):
                return f"(-{self.value(node.operand)})"
            case ast.UnaryOp(ast.Not()):
                return f"!({self.value(node.operand)})"
            case ast.BinOp(op=ast.FloorDiv()):
                return f"floorDiv({self.value(node.left)}, {self.value(node.right)})"
            case ast.BinOp(op=ast.Mod()):
                return f"mod({self.value(node.left)}, {self.value(node.right)})"
            case ast.BinOp() if type(node.op) in OPERATORS:
                sign = OPERATORS[type(node.op)]
                return f"({self.value(node.left)} {sign} {self.value(node.right)})"
            case ast.BoolOp():
                sign = " && " if isinstance(node.op, ast.And) else " || "
                return f"({sign.join(map(self.value, node.values))})"
            case ast.Compare(ops=[op], comparators=[right]) if type(op) in COMPARED:
                return f"{self.value(node.left)} {COMPARED[type(op)]} {self.value(right)}"
            case ast.IfExp():
                parts = (self.value(part) for part in (node.test, node.body, node.orelse))
                return "({} ? {} : {})".format(*parts)
            case ast.Call():
                return self.call(node)
            case ast.Attribute(ast.Call(ast.Name("type"), [of]), "__name__"):
                return f"typeName({self.value(of)})"
            case ast.Attribute(ast.Name() | ast.Attribute(), name):
                return f"{self.value(node.value)}.{name}"
            case ast.JoinedStr():
                return f"`{''.join(map(self.text, node.values))}`"
        raise self.error(node)

    def call(self, node: ast.Call) -> str:
        match node:
            case ast.Call(ast.Name("isinstance"), [of, ast.Name(name)]) if name in TYPES:
                return f"typeof {self.value(of)} === {json.dumps(TYPES[name])}"
            case ast.Call(ast.Name("sum"), [ast.GeneratorExp(each, [of])]):
                match of:
                    case ast.comprehension(ast.Name(name), ast.Name(many), []):
                        body = self.value(each)
                        return f"{many}.reduce((sum, {name}) => sum + {body}, 0n)"
            case ast.Call(ast.Name(name), [], [_, *_]) if name[0].isupper():  # a record
                fields = (f"{field.arg}: {self.value(field.value)}" for field in node.keywords)
                return f"{{ {', '.join(fields)} }}"
            case ast.Call(ast.Name(name) | ast.Attribute(ast.Name("check"), name), _, []):
                return f"{name}({', '.join(map(self.value, node.args))})"
        raise self.error(node)

    def text(self, part: ast.expr) -> str:
        match part:
            case ast.Constant(str(text)) if not set(text) & set("`\\$"):
                return text
            case ast.FormattedValue(value, -1, None):
                return f"${{{self.value(value)}}}"
        raise self.error(part)

    def error(self, node: ast.AST) -> SourceError:
        code = ast.unparse(node).splitlines()[0]
        return SourceError(f"cannot be translated to JavaScript: {code}", self.path, node.lineno)
