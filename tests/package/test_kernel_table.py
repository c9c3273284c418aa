"""docs/data/texts/kernels.tsv against PyTorch itself, as far as a CPU can tell."""

import csv
import inspect
import itertools
import json
import tomllib
import warnings
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, _fa3, _fa4, sdpa_kernel
from torch.nn.attention.flex_attention import flex_attention
from torch.nn.attention.varlen import varlen_attn

DATA = Path(__file__).parents[2] / "docs" / "data"
with (DATA / "texts" / "kernels.tsv").open(encoding="utf-8", newline="") as file:
    LINES = list(csv.DictReader(file, delimiter="\t"))
TABLE = {(line["kernel"], line["property"]): line["entry"] for line in LINES}
KERNELS = list(dict.fromkeys(kernel for kernel, _ in TABLE))
SDPA = KERNELS[:6]


def test_every_cell_is_there_once_with_a_known_source_and_its_place():
    properties = list(dict.fromkeys(name for _, name in TABLE))
    assert list(TABLE) == list(itertools.product(KERNELS, properties))
    assert len(TABLE) == len(LINES)
    known = tomllib.loads((DATA / "bibliography.toml").read_text(encoding="utf-8"))
    assert {line["source"] for line in LINES} <= known.keys()
    assert all(line["place"] and line["entry"] for line in LINES)


def test_sdpa_has_no_argument_for_what_the_table_denies():
    text = F.scaled_dot_product_attention.__doc__
    call = text[: text.index("->")]
    assert not any(word in call for word in ("window", "cap", "sink", "logsumexp"))
    for kernel, name in itertools.product(SDPA, ("window", "cap", "sink", "lse")):
        assert TABLE[kernel, name] == "–"


def test_grouped_heads_in_the_documentation():
    text = " ".join(F.scaled_dot_product_attention.__doc__.split())
    assert "It currently works only for Flash_attention and math kernel on CUDA" in text
    assert TABLE["EFFICIENT", "groups"] == "–"
    assert TABLE["FLASH", "groups"] == TABLE["MATH", "groups"] == "✓"


ASKED = {
    "`attn_mask=mask`": "mask",
    "`bias.requires_grad_()`": "bias gradient",
    "`enable_gqa=True`": "groups",
}


@pytest.mark.parametrize("file", sorted(DATA.glob("measured/nvidia*/sdpa-backends.json")))
def test_a_gpu_took_and_refused_what_the_table_says(file):
    measured = json.loads(file.read_text(encoding="utf-8"))
    columns = measured["columns"][3:]
    rows = {row[1]: row[3:] for row in measured["rows"] if row[0] == "bfloat16"}
    for argument, name in ASKED.items():
        for kernel, seconds in zip(columns, rows[argument], strict=True):
            assert (TABLE[kernel.upper(), name] == "✓") is (seconds != "–"), (kernel, name)


ARGUMENTS = {"window": "window_size", "groups": "enable_gqa", "lse": "return_aux"}


@pytest.mark.parametrize(("name", "argument"), ARGUMENTS.items())
def test_varlen_attn(name, argument):
    assert argument in inspect.signature(varlen_attn).parameters
    assert TABLE["varlen_attn", name] == "✓"


def test_varlen_attn_has_no_mask_no_cap_no_sink():
    names = " ".join(inspect.signature(varlen_attn).parameters)
    assert not any(word in names for word in ("mask", "bias", "cap", "sink"))
    for name in ("mask", "bias gradient", "cap", "sink"):
        assert TABLE["varlen_attn", name] == "–"


def test_flex_attention():
    names = inspect.signature(flex_attention).parameters
    assert {"score_mod", "block_mask", "enable_gqa", "return_aux"} <= names.keys()
    for name in ("mask", "window", "cap", "lengths"):
        assert TABLE["flex_attention", name] == "ƒ"


def taken(dtype, module):
    """Whether FA3's or FA4's own check in PyTorch lets the type pass, up to the GPU that lacks."""
    q, extra = torch.zeros(2, 3, 5, 8, dtype=dtype), (None,) * 3
    if module is _fa3:
        error = _fa3._fa3_forward_support_error(q, q, q, 0.0, False, None, None, None, *extra)
    else:
        error = _fa4._fa4_forward_support_error(q, q, q, 0.0, False, None, None, None)
    assert error is not None
    return "dtype" not in error and "must be one of" not in error


@pytest.mark.parametrize(("dtype", "sign"), [(torch.bfloat16, "16"), (torch.float32, "32")])
def test_types_of_flash_attention_3(dtype, sign):
    assert taken(dtype, _fa3) == (sign in TABLE["FLASH = FA3", "bits"])


def test_eight_bits_are_forward_only_in_flash_attention_3():
    assert taken(torch.float8_e4m3fn, _fa3)
    q = torch.zeros(2, 3, 5, 8, dtype=torch.float8_e4m3fn)
    sizes = torch.zeros(2, 3, 5)
    error = _fa3._fa3_backward_support_error(q, q, q, q, q, sizes, 0.0, None, -1, -1)
    assert "does not support fp8" in error
    assert TABLE["FLASH = FA3", "bits"] == "16, 8→"


def allowed(backend, query, key, value, **options):
    try:
        with sdpa_kernel(backend):
            F.scaled_dot_product_attention(query, key, value, **options)
    except RuntimeError:
        return False
    return True


def test_math_takes_what_the_table_says():
    q, k, v = torch.randn(2, 6, 5, 8), torch.randn(2, 3, 7, 8), torch.randn(2, 3, 7, 11)
    bias = torch.randn(6, 5, 7, requires_grad=True)
    with sdpa_kernel(SDPBackend.MATH):
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, enable_gqa=True)
    out.sum().backward()
    assert out.shape == (2, 6, 5, 11)
    assert bias.grad is not None
    for name in ("mask", "bias gradient", "groups", "size of V"):
        assert TABLE["MATH", name] == "✓"
    for dtype, sign in ((torch.float16, "16"), (torch.float32, "32"), (torch.float64, "64")):
        assert allowed(SDPBackend.MATH, *(x.to(dtype) for x in (q, k, v)), enable_gqa=True)
        assert sign in TABLE["MATH", "bits"]


def test_math_takes_nested_tensors():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a prototype
        texts = [torch.randn(3, size, 8) for size in (2, 5)]
        nested = torch.nested.nested_tensor(texts)
    with sdpa_kernel(SDPBackend.MATH):
        found = F.scaled_dot_product_attention(nested, nested, nested)
    for each, text in zip(found.unbind(), texts, strict=True):
        torch.testing.assert_close(each, F.scaled_dot_product_attention(*[text[None]] * 3)[0])
    assert TABLE["MATH", "lengths"] == "∘"
