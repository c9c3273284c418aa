"""The stand-in for torch that runs in a reader's page prints what torch prints: on the pages, on
random programs, from random seeds.
"""

import contextlib
import json
import math
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings, strategies as st
from mhsite.stories.source import ROOT, sections

CELLS = Path(__file__).parent / "page_cells.py"
PROGRAMS = tomllib.loads((Path(__file__).parent / "page_programs.toml").read_text(encoding="utf-8"))

# What pages print otherwise, or not at all, in a page: story:section, and why.
LACKS = {
    "questions:flex-attention": "masks of blocks are compiled by torch",
    "questions:bfloat16": "torch rounds to 16 bits on the way, the stand-in only results",
    "questions:graphs": "torch.compile",
    "questions:recompiles": "torch.compile",
    "questions:need-weights": "torch's profiler",
}
ROAD = [
    "why-attention",
    "attention",
    "masks",
    "why-heads",
    "multi-head",
    "shapes",
    "block",
    "build-and-train",
]


class Page:
    """A process in which the stand-in is torch, or, to compare, torch itself."""

    def __init__(self, folder, *options):
        environment = {"MHATTN_FILES": str(folder), "OMP_NUM_THREADS": "1", "PATH": ""}
        self.process = subprocess.Popen(
            [sys.executable, str(CELLS), *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            cwd=ROOT,
            env=environment,
        )

    def run(self, cells):
        """What each cell printed, its error, its seconds."""
        self.process.stdin.write(json.dumps(cells) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


@contextlib.contextmanager
def page(folder, *options):
    opened = Page(folder, *options)
    try:
        yield opened
    finally:
        opened.close()


def statements(story):
    """The section, the code and what is printed, of each statement of a story."""
    found = []
    for section in sections(ROOT / f"docs/stories/{story}.pycon").values():
        for example in section.examples():
            found.append((f"{story}:{section.name}", example.source, example.want))
    return found


def differing(told, found):
    """The statements that printed something else: their section, and what it was."""
    return [
        (name, f"{source}{error or printed}")
        for (name, source, want), (printed, error, _) in zip(told, found, strict=True)
        if error or printed != want.replace("<BLANKLINE>\n", "\n")
    ]


def holds(story, folder, *options, share=0.99):
    """So large a share is printed as the page has it, and what isn't is known."""
    told = statements(story)
    with page(folder, *options) as opened:
        found = opened.run([[name, source, "single"] for name, source, _ in told])
    wrong = differing(told, found)
    lacks = {name for name in LACKS if name.startswith(f"{story}:")}
    assert [said for name, said in wrong if name not in lacks] == []
    assert lacks == {name for name, _ in wrong}, "no longer lacking: take it out of LACKS"
    assert len(wrong) <= (1 - share) * len(told)


@pytest.mark.parametrize("story", [*ROAD[:6], "by-hand"])
def test_a_page_prints_what_it_says(story, tmp_path):
    """In plain Python, as a page without faster loops."""
    holds(story, tmp_path, *(["--fast"] if story == "attention" else []))


@pytest.mark.parametrize("story", ["block", "questions"])
def test_a_page_prints_what_it_says_with_fast_loops(story, tmp_path):
    """With NumPy's loops in the places where a page puts those of typed arrays."""
    holds(story, tmp_path, "--fast", share=0.9 if story == "questions" else 0.99)


@pytest.mark.slow
def test_the_page_that_trains_prints_what_it_says(tmp_path):
    holds("build-and-train", tmp_path, "--fast")


# Labs: each statement is compared with what it prints under torch itself. These sections don't
# run in the test, since they train for minutes in a page, or need what was trained.
TRAINS = {
    "answer-heads": "model gaps shares directs found figure",
    "choose-heads": "train found found-figure why control",
    "every-head": (
        "train losses table best large-previous large-prefix solution-average solution-shuffle "
        "solution-zero solution-period"
    ),
    "head-roles": "found figure",
    "make-gqa": "train further-solution compare compare-figure",
    "rank-heads": (
        "model removal-solution removal-table gradient-solution measures agreements fifteen "
        "prune-solution curves curves-figure"
    ),
}
DEFINES = ("def ", "class ", "@torch.no_grad()", "kept = ")  # what stays of a section left out
# TorchDispatchMode: the stand-in has no kernels of torch's that could be counted.
COUNTS = {"serial-parallel": "launched-solution counts times record waiting waiting-figure"}


def lab_cells(lab):
    """Name, code and mode of each statement; of what is left out, the definitions."""
    left_out = (TRAINS.get(lab, "") + " " + COUNTS.get(lab, "")).split()
    return [
        [f"{lab}:{section.name}", example.source, "exec"]
        for section in sections(ROOT / f"docs/labs/{lab}.py").values()
        for example in section.examples()
        if section.name not in left_out or example.source.startswith(DEFINES)
        if not (lab in TRAINS and example.source.startswith("assert "))  # of what was trained
    ]


@pytest.mark.slow
@pytest.mark.parametrize("lab", sorted(path.stem for path in (ROOT / "docs/labs").glob("*.py")))
def test_a_lab_prints_what_torch_prints(lab, tmp_path):
    cells = lab_cells(lab)
    with page(tmp_path, "--real") as with_torch, page(tmp_path, "--fast") as without:
        right, found = with_torch.run(cells), without.run(cells)
    assert [error for _, error, _ in right if error] == []
    assert [
        f"{name}: {error or printed}"
        for (name, *_), (want, _, _), (printed, error, _) in zip(cells, right, found, strict=True)
        if error or printed != want
    ] == []


# Random numbers

DRAWN = """
import torch
told = {}
for n in [*range(1, 41), 64, 97, 1000]:
    for kind in torch.float32, torch.float64:
        torch.manual_seed(7 * n + 1)
        told[f"randn {n} {kind}"] = torch.randn(n, dtype=kind)
        told[f"rand {n} {kind}"] = torch.rand(n, dtype=kind)
        told[f"normal_ {n} {kind}"] = torch.empty(n, dtype=kind).normal_(0.3, 0.02)
        told[f"uniform_ {n} {kind}"] = torch.empty(n, dtype=kind).uniform_(-0.3, 0.7)
        told[f"a few after {n} {kind}"] = torch.randn(3, dtype=kind)
    told[f"randint {n}"] = torch.randint(-3, n + 5, (n,))
    told[f"randint, 64 bits {n}"] = torch.randint(2**40, (n,))
    told[f"randperm {n}"] = torch.randperm(n)
    told[f"dropout {n}"] = torch.nn.functional.dropout(torch.ones(n), 0.3)
    told[f"bernoulli {n}"] = torch.bernoulli(torch.full((n,), 0.3))
    linear = torch.nn.Linear(n, 3)
    told[f"Linear {n}"], told[f"bias {n}"] = linear.weight, linear.bias
    told[f"Embedding {n}"] = torch.nn.Embedding(n, 2).weight
    told[f"xavier {n}"] = torch.nn.init.xavier_uniform_(torch.empty(n, 3))
    told[f"own generator {n}"] = torch.rand(n, generator=torch.Generator().manual_seed(n))
told["a seed beyond 32 bits"] = torch.rand(3, generator=torch.Generator().manual_seed(2**40 + 5))
layer = torch.nn.MultiheadAttention(12, 3)
told["MultiheadAttention"] = layer.in_proj_weight
told["its output"] = layer.out_proj.weight
told = {name: [float(x).hex() for x in tensor.flatten().tolist()] for name, tensor in told.items()}
"""


def test_random_numbers_are_bit_for_bit_those_of_torch(tmp_path):
    names = {}
    with torch.random.fork_rng():
        exec(DRAWN, names)
    with page(tmp_path) as opened:
        ((printed, error, _),) = opened.run(
            [["drawn", DRAWN + "\nimport json\nprint(json.dumps(told))", "exec"]]
        )
    assert error is None, error
    found = json.loads(printed)
    assert list(found) == list(names["told"])
    assert [name for name, numbers in names["told"].items() if numbers != found[name]] == []


# Random programs

PRELUDE = """
import math
import torch
from torch import nn
from torch.nn import functional as F

def told(y):
    if isinstance(y, torch.Tensor):
        numbers = [float(x) for x in y.flatten().tolist()]
        return ["tensor", list(y.shape), str(y.dtype), list(y.stride()), y.requires_grad, numbers]
    if isinstance(y, (list, tuple)):
        return ["tuple", *map(told, y)]
    return ["plain", repr(y)]
"""

# No two numbers alike: which of two equal ones is taken, torch does not say.
APART = "\napart = x + (torch.arange(x.numel()) % 64).reshape(x.shape) / 1024"


@st.composite
def operands(draw, kind="float32"):
    """Code that makes x and y: shapes of different primes, numbers that floats hold exactly, some
    broadcast, some views.
    """
    shape = draw(
        st.sampled_from(
            [(2, 3), (3, 5), (5, 2), (2, 3, 5), (3, 2, 5), (5, 3, 2), (3, 5, 7), (2, 7, 3)]
        )
    )
    count = math.prod(shape)
    numbers = draw(
        st.lists(st.integers(-24, 24), min_size=2 * count, max_size=2 * count, unique=False)
    )
    first, second = ([number / 8 for number in numbers[i::2]] for i in (0, 1))
    code = [
        f"leaf = torch.tensor({first}, dtype=torch.{kind})",
        f"y = torch.tensor({second}, dtype=torch.{kind}).reshape({shape})",
    ]
    view = draw(st.sampled_from(["rows", "turned", "cut", "rows"]))
    if view == "rows":
        code.append(f"make = lambda: leaf.reshape({shape})")
    elif view == "turned":
        code.append(f"make = lambda: leaf.reshape({(*shape[:-2], shape[-1], shape[-2])}).mT")
    else:
        code.append(
            f"make = lambda: torch.cat([leaf.reshape({shape})] * 2, -1)[..., {shape[-1] // 2} : "
            f"{shape[-1] // 2 + shape[-1]}]"
        )
    if draw(st.booleans()):
        at = draw(st.integers(0, len(shape) - 1))
        code.append(
            f"y = y.narrow({at}, 0, 1)"
            if draw(st.booleans())
            else f"y = y.select({at}, 0).unsqueeze({at})"
        )
    code.append(f"d = {draw(st.integers(-len(shape), len(shape) - 1))}")
    return "\n".join(code)


def both(opened, code):
    """What a program tells under torch, and under the stand-in."""
    names, error = {}, None
    try:
        exec(PRELUDE + code, names)
    except Exception as why:  # whatever torch refuses, the stand-in has to refuse as well
        error = type(why).__name__
    ((printed, fault, _),) = opened.run(
        [["program", PRELUDE + code + "\nimport json\nprint(json.dumps(result))", "exec"]]
    )
    if error or fault:
        return error, fault and fault.partition(":")[0]
    return json.loads(json.dumps(names["result"])), json.loads(printed)


def alike(right, found, near):
    """Whether two results are the same, numbers as near as asked."""
    if right == found:
        return True
    if not (isinstance(right, list) and isinstance(found, list) and right[0] == found[0]):
        return False
    if right[0] == "tuple":
        return len(right) == len(found) and all(
            map(alike, right[1:], found[1:], [near] * len(right))
        )
    if right[0] != "tensor" or right[1:3] != found[1:3] or right[4] != found[4]:
        return False
    close = (
        math.isclose(a, b, rel_tol=near, abs_tol=near) or (a != a and b != b)
        for a, b in zip(right[5], found[5], strict=True)
    )
    return all(close)


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory):
    with page(tmp_path_factory.mktemp("files")) as opened:
        yield opened


MANY = settings(
    max_examples=250, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
)


@MANY
@given(st.data())
def test_random_programs_with_gradients(stand_in, data):
    kind = data.draw(st.sampled_from(["float32", "float64"]))
    expression = data.draw(st.sampled_from(PROGRAMS["gradients"]))
    code = data.draw(operands(kind)) + (
        "\nleaf.requires_grad_(); x = make()"
        f"{APART}"
        f"\nz = {expression}"
        "\nw = (torch.arange(z.numel()) % 5 - 1.5).to(z.dtype).reshape(z.shape)"
        "\n(z * w).sum().backward()"
        "\nresult = told((z, leaf.grad))"
    )
    right, found = both(stand_in, code)
    assert alike(right, found, 2e-5 if kind == "float32" else 1e-10), f"{code}\n{right}\n{found}"


COMPLEX = """
import torch
generator = torch.Generator().manual_seed(7)
x = torch.rand(3, 5, 4, generator=generator).requires_grad_()
turn = torch.polar(torch.ones(5, 2), torch.arange(5.0)[:, None] * torch.tensor([1.0, 0.01]))
pairs = torch.view_as_complex(x.reshape(3, 5, 2, 2))
halves = torch.complex(*x.chunk(2, dim=-1)) * turn
z = torch.view_as_real(pairs * turn).flatten(-2) + torch.cat([halves.real, halves.imag], dim=-1)
(z * z).sum().backward()
more = 2 * pairs.conj() + 1j * halves - halves[0].unsqueeze(0) * (1 - 2j)
result = told((z, x.grad)), told(torch.view_as_real(more)), told(pairs.abs())
"""


def test_pairs_turn_as_complex_numbers(stand_in):
    right, found = both(stand_in, COMPLEX)
    assert all(alike(*each, 2e-5) for each in zip(right, found, strict=True))


@MANY
@given(st.data())
def test_random_programs_without_gradients(stand_in, data):
    expression = data.draw(st.sampled_from(PROGRAMS["plain"]))
    code = data.draw(operands()) + f"\nx = make(){APART}\nresult = told({expression})"
    right, found = both(stand_in, code)
    assert alike(right, found, 1e-5), f"{code}\n{right}\n{found}"


@MANY
@given(st.data())
def test_random_tensors_are_printed_alike(stand_in, data):
    expression = data.draw(st.sampled_from(PROGRAMS["printed"]))
    code = data.draw(operands()) + f"\nx = make()\nresult = str({expression})"
    right, found = both(stand_in, code)
    assert right == found, f"{code}\n{right}\n{found}"


@MANY
@given(st.data())
def test_random_programs_that_write(stand_in, data):
    """Into a tensor, through views too; with gradients of what was there before."""
    statement, kept = data.draw(st.sampled_from(PROGRAMS["writing"])), data.draw(st.booleans())
    start = "leaf.requires_grad_(); x = make().contiguous().clone()" if kept else "x = make()"
    end = (
        "if leaf.requires_grad:\n    (x * x).sum().backward()\nresult = told((x, leaf.grad))"
        if kept
        else "result = told((x, leaf))"
    )
    code = data.draw(operands()) + f"\ntorch.manual_seed(3)\n{start}\n{statement}\n{end}"
    right, found = both(stand_in, code)
    assert alike(right, found, 1e-5), f"{code}\n{right}\n{found}"


def test_what_is_lacking_is_named(stand_in):
    cells = [
        "import torch",
        "torch.fft.rfft(torch.ones(3))",
        "torch.ones(2).svd()",
        "torch.nn.Conv2d(1, 1, 1)",
        "torch.compile(print)",
        "torch.ones(2).nosuch",
    ]
    found = stand_in.run([["lacking", cell, "exec"] for cell in cells])
    names = ["fft.rfft", "Tensor.svd", "nn.Conv2d", "compile"]
    for (_, error, _), name in zip(found[1:], names, strict=False):
        assert error.startswith(f"Lacking: torch.{name} is not in this page's stand-in"), error
    assert found[-1][1] == "AttributeError: 'Tensor' object has no attribute 'nosuch'"


@pytest.mark.parametrize("code", PROGRAMS["refused"])
def test_errors_have_the_words_of_torch(stand_in, code):
    right = found = None
    try:
        exec(PRELUDE + code, {})
    except Exception as why:
        right = f"{type(why).__name__}: {why}"
    ((_, found, _),) = stand_in.run([["message", PRELUDE + code, "exec"]])
    assert right is not None
    assert found == right
