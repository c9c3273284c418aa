"""Against our masks and biases, rules in loops, torch's create_block_mask, and dense attention."""

import itertools
import math
import shutil
import sys

import pytest
import torch
from mhsite.stories.translation import shown_section
from torch.nn.attention.flex_attention import (
    and_masks,
    create_block_mask,
    create_mask,
    flex_attention,
    or_masks,
)

from mhattn import Alibi, attention, causal_mask, padding_mask, strided_mask, window_mask
from mhattn.inside import peak_bytes
from mhattn.variants import (
    alibi_mod,
    causal_mod,
    padding_mod,
    strided_mod,
    window_block_mask,
    window_mod,
)

# Uncompiled, FlexAttention computes the whole table, and says so in a warning.
pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")

PAIRS = list(itertools.product(range(1, 14), range(1, 14)))
SIZES = [1, 2, 3, 5, 11, 20]
B, H, H_KV, D, D_V = 2, 6, 3, 5, 7


def table(mask_mod, L, S, b=0, h=0):
    """The function's answer for all queries and keys at once; like vmap, by broadcasting."""
    i, j = torch.arange(L)[:, None], torch.arange(S)
    return mask_mod(torch.tensor(b), torch.tensor(h), i, j).expand(L, S)


def by_rule(L, S, rule):
    return torch.tensor([[rule(i + S - L, j) for j in range(S)] for i in range(L)])


def tensors(L, S, *, num_kv_heads=H, dtype=torch.float64):
    shapes = (H, L, D), (num_kv_heads, S, D), (num_kv_heads, S, D_V)
    return [torch.randn(B, *shape, dtype=torch.float64).to(dtype) for shape in shapes]


def assert_equal(output, expected, atol=1e-12):
    torch.testing.assert_close(output, expected, atol=atol, rtol=0)


def test_causal_is_the_mask():
    for L, S in PAIRS:
        found = table(causal_mod(L, S), L, S)
        assert found.equal(causal_mask(L, S))
        assert found.equal(by_rule(L, S, lambda p, j: j <= p))


@pytest.mark.parametrize("window", SIZES)
def test_window_is_the_mask(window):
    for L, S in PAIRS:
        found = table(window_mod(L, S, window), L, S)
        assert found.equal(window_mask(L, S, window))
        assert found.equal(by_rule(L, S, lambda p, j: abs(p - j) < window))


@pytest.mark.parametrize("stride", SIZES)
def test_strided_is_the_mask(stride):
    for L, S in PAIRS:
        found = table(strided_mod(L, S, stride), L, S)
        assert found.equal(strided_mask(L, S, stride))
        assert found.equal(by_rule(L, S, lambda p, j: (p - j) % stride == 0))


def test_padding_is_the_mask():
    for L, S in PAIRS:
        lengths = torch.randint(S + 1, (B,))
        found = [table(padding_mod(lengths, S), L, S, b) for b in range(B)]
        assert torch.stack(found).equal(padding_mask(lengths, S)[:, 0].expand(B, L, S))
        lengths = torch.randint(S + 1, (B, L))
        found = [table(padding_mod(lengths, S), L, S, b) for b in range(B)]
        assert torch.stack(found).equal(padding_mask(lengths, S)[:, 0])


@pytest.mark.parametrize(("L", "S"), [(7, 7), (5, 11), (11, 5)])
def test_combinations_are_those_of_the_masks_under_vmap(L, S):
    causal, window, stride = causal_mod(L, S), window_mod(L, S, 3), strided_mod(L, S, 4)
    lengths = torch.tensor([S, S // 2])
    mask_mod = and_masks(causal, or_masks(window, stride), padding_mod(lengths, S))
    near, far = window_mask(L, S, 3), strided_mask(L, S, 4)
    expected = causal_mask(L, S) & (near | far) & padding_mask(lengths, S)
    found = create_mask(mask_mod, 2, 3, L, S, device="cpu")
    assert found.equal(expected.expand(2, 3, L, S))


@pytest.mark.parametrize("num_heads", [1, 2, 3, 5, 8, 12])
@pytest.mark.parametrize(("L", "S"), [(1, 7), (5, 5), (5, 11), (11, 5)])
def test_alibi_is_the_bias(num_heads, L, S):
    alibi = Alibi(num_heads)
    scores = torch.randn(num_heads, L, S, dtype=torch.float64)
    b, h, i, j = torch.zeros(()), torch.arange(num_heads), torch.arange(L), torch.arange(S)
    changed = alibi_mod(alibi, L, S)(scores, b, h[:, None, None], i[:, None], j)
    assert_equal(changed, scores + alibi.bias(L, S, dtype=torch.float64))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_alibi_keeps_the_precision(dtype):
    score = torch.zeros(3, dtype=dtype)
    changed = alibi_mod(Alibi(3), 3, 3)(score, 0, torch.tensor(1), torch.tensor(2), torch.arange(3))
    assert changed.dtype == dtype


def kinds(seen, block_size):
    """0 absent, 1 partial, 2 full, by counting cells; a block that is cut off is never full."""
    L, S = seen.shape
    rows, columns = -(-L // block_size), -(-S // block_size)
    found = torch.zeros(rows, columns, dtype=torch.int)
    for r, c in itertools.product(range(rows), range(columns)):
        cut = (
            slice(r * block_size, (r + 1) * block_size),
            slice(c * block_size, (c + 1) * block_size),
        )
        number = seen[cut].sum().item()
        found[r, c] = 2 if number == block_size**2 else number > 0
    return found


def listed(block_mask):
    """The same, from the lists of a block mask; a block in both is 3."""
    rows, columns = block_mask.kv_indices.shape[-2:]
    found = torch.zeros(rows, columns, dtype=torch.int)
    lists = (
        (1, block_mask.kv_num_blocks, block_mask.kv_indices),
        (2, block_mask.full_kv_num_blocks, block_mask.full_kv_indices),
    )
    for kind, numbers, places in lists:
        for r in range(rows):
            for c in places[0, 0, r, : numbers[0, 0, r]].tolist():
                found[r, c] += kind
    return found


EDGES = [1, 5, 13, 15, 16, 17, 31, 32, 33, 61]


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("window", [None, 1, 2, 15, 16, 17, 18, 33, 100])
def test_blocks_are_those_that_are_counted(window, is_causal):
    def rule(p, j):
        return (window is None or abs(p - j) < window) and (j <= p or not is_causal)

    for L, S in itertools.product([1, 16, 31, 33, 61], [1, 15, 32, 53]):
        block_mask = window_block_mask(L, S, window, is_causal=is_causal, block_size=16)
        assert listed(block_mask).equal(kinds(by_rule(L, S, rule), 16)), (L, S)


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("window", [None, 1, 2, 16, 17, 33, 100])
def test_block_masks_are_those_of_torch(window, is_causal):
    for L, S in itertools.product(EDGES, EDGES[1::2]):
        ours = window_block_mask(L, S, window, is_causal=is_causal, block_size=16)
        seen = causal_mask(L, S) if is_causal else torch.ones(L, S, dtype=torch.bool)
        seen = seen if window is None else seen & window_mask(L, S, window)
        assert create_mask(ours.mask_mod, 1, 1, L, S, "cpu")[0, 0].equal(seen)
        theirs = create_block_mask(
            lambda b, h, i, j, seen=seen: seen[i, j], None, None, L, S, "cpu", BLOCK_SIZE=16
        )
        assert (ours.seq_lengths, ours.BLOCK_SIZE) == ((L, S), (16, 16))
        lists = {n: x for n, x in vars(theirs).items() if x is None or isinstance(x, torch.Tensor)}
        assert len(lists) >= 8
        for name, expected in lists.items():
            found = getattr(ours, name)
            assert (found is None) == (expected is None)
            if found is not None:
                assert found.dtype == expected.dtype
                assert found.equal(expected), (name, L, S)


@pytest.mark.parametrize("blocks", [1, 2, 7, 32])
def test_causal_blocks_in_closed_form(blocks):
    found = listed(window_block_mask(128 * blocks, 128 * blocks, is_causal=True))
    below = blocks * (blocks - 1) // 2
    assert [(found == kind).sum().item() for kind in range(3)] == [below, blocks, below]


def test_a_block_mask_of_a_long_sequence_needs_no_table():
    n = 2**17
    assert peak_bytes(lambda: window_block_mask(n, n, 1000, is_causal=True)) < n * n / 200


def by_blocks(query, key, value, block_mask):
    """What is listed and nothing else, masked where it is partial."""
    scores = query @ key.mT / math.sqrt(D)
    hidden = torch.full_like(scores, -math.inf)
    size, kind = block_mask.BLOCK_SIZE[0], listed(block_mask)
    seen = create_mask(block_mask.mask_mod, 1, 1, *scores.shape[-2:], device="cpu")
    for r, c in itertools.product(*map(range, kind.shape)):
        cut = ..., slice(r * size, (r + 1) * size), slice(c * size, (c + 1) * size)
        if kind[r, c] == 2:
            hidden[cut] = scores[cut]
        elif kind[r, c] == 1:
            hidden[cut] = scores[cut].masked_fill(~seen[cut], -math.inf)
    return hidden.softmax(dim=-1).nan_to_num() @ value


CASES = [(37, 37, 11, True), (37, 53, 11, True), (53, 37, 11, True), (53, 37, 17, False)]


@pytest.mark.parametrize(("L", "S", "window", "is_causal"), CASES)
def test_flex_is_dense_attention(L, S, window, is_causal):
    """Where L > S, the first queries stand before all keys and see none: zeros."""
    inputs = tensors(L, S)
    block_mask = window_block_mask(L, S, window, is_causal=is_causal, block_size=16)
    expected = attention(*inputs, mask=window_mask(L, S, window), is_causal=is_causal)
    assert_equal(flex_attention(*inputs, block_mask=block_mask), expected)
    assert_equal(by_blocks(*inputs, block_mask), expected)


@pytest.mark.parametrize("num_kv_heads", [1, H_KV])
def test_flex_with_grouped_heads_padding_and_alibi(num_kv_heads):
    L, S = 37, 53
    inputs, alibi = tensors(L, S, num_kv_heads=num_kv_heads), Alibi(H)
    lengths = torch.tensor([53, 19])
    mask_mod = and_masks(causal_mod(L, S), padding_mod(lengths, S))
    block_mask = create_block_mask(mask_mod, B, None, L, S, "cpu", BLOCK_SIZE=16)
    score_mod = alibi_mod(alibi, L, S)
    output = flex_attention(*inputs, score_mod, block_mask, enable_gqa=True)
    bias = alibi.bias(L, S, dtype=torch.float64)
    expected = attention(*inputs, mask=padding_mask(lengths, S), bias=bias, is_causal=True)
    assert_equal(output, expected)


def test_flex_with_sequences_that_have_no_keys():
    inputs, lengths = tensors(5, 7), torch.tensor([0, 3])
    block_mask = create_block_mask(padding_mod(lengths, 7), B, None, 5, 7, "cpu", BLOCK_SIZE=16)
    output = flex_attention(*inputs, block_mask=block_mask)
    assert_equal(output, attention(*inputs, mask=padding_mask(lengths, 7)))
    assert not output[0].any()


@pytest.mark.parametrize(("dtype", "atol"), [(torch.float16, 4e-3), (torch.bfloat16, 3e-2)])
def test_flex_in_half_precision(dtype, atol):
    inputs, alibi = tensors(13, 17, dtype=dtype), Alibi(H)
    block_mask = window_block_mask(13, 17, 5, is_causal=True)
    output = flex_attention(*inputs, alibi_mod(alibi, 13, 17), block_mask)
    options = {"bias": alibi.bias(13, 17, dtype=torch.float64), "is_causal": True}
    expected = attention(*(x.double() for x in inputs), mask=window_mask(13, 17, 5), **options)
    assert output.dtype == dtype
    assert_equal(output.double(), expected, atol)


@pytest.mark.skipif(
    sys.platform == "win32" or not shutil.which("g++"),
    reason="needs a C++ compiler; Windows has another",
)
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")
@pytest.mark.slow
@torch.no_grad()
def test_compiled_flex_reads_the_lists_and_agrees():
    """A block that is not listed is not read, so a NaN there reaches nobody."""
    L, S, window = 101, 211, 37
    query, key, value = tensors(L, S, num_kv_heads=H_KV, dtype=torch.float32)
    alibi = Alibi(H)
    block_mask = window_block_mask(L, S, window, is_causal=True, block_size=32)
    compiled, score_mod = torch.compile(flex_attention, fullgraph=True), alibi_mod(alibi, L, S)
    seen = window_mask(L, S, window)
    options = {"bias": alibi.bias(L, S), "is_causal": True}
    expected = attention(query, key, value, mask=seen, **options)
    first = (S - L - window + 1) // 32 * 32  # the blocks before this key are absent
    assert first > 0
    value[:, :, :first] = math.nan
    output = compiled(query, key, value, score_mod, block_mask, enable_gqa=True)
    assert_equal(output, expected, atol=2e-6)


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")
@pytest.mark.slow
@torch.no_grad()
def test_the_compiled_call_of_the_page_gives_the_same():
    """The page defines it and doesn't make it, since a reader may have no compiler."""
    names, dtype = {}, torch.get_default_dtype()
    try:
        for section in ("kinds", "blocks", "mask", "compiled"):
            exec(shown_section(f"flex-attention.pycon:{section}").code, names)
    finally:
        torch.set_default_dtype(dtype)
    output = names["by_kernel"]()
    assert output.dtype == torch.float32
    assert_equal(output.double(), names["output"], atol=2e-6)


@pytest.mark.filterwarnings("ignore")  # the library has many
def test_the_masks_of_images_are_those_of_transformers():
    """The functions of the page, for three texts; one has no image, one begins with one."""
    from transformers import Gemma3TextConfig
    from transformers.models.gemma3 import modeling_gemma3 as theirs
    from transformers.models.gemma4 import modeling_gemma4 as next_model

    names = {"torch": torch}
    exec(shown_section("flex-attention.pycon:images").code, names)
    rows = ["..AAAAA.BB..A", "." * 13, "AAAA.BBBBBB.."]
    is_image = torch.tensor([[sign != "." for sign in row] for row in rows])
    image, L = names["numbered"](is_image), is_image.shape[1]
    assert image.equal(theirs.get_block_sequence_ids_for_mask(is_image.long()))
    for window in (1, 3, 5, 20):
        config = Gemma3TextConfig(sliding_window=window, attn_implementation="sdpa")
        inputs = config, torch.zeros(3, L, 8), None, None, None, image
        ours = [
            torch.stack([table(names["with_images"](image, width), L, L, b) for b in range(3)])
            for width in (None, window)
        ]
        found = theirs.create_masks_for_vision_model(*inputs)
        assert found["full_attention"][:, 0].equal(ours[0])
        assert found["sliding_attention"][:, 0].equal(ours[1])
        local = next_model.create_masks_for_vision_model(*inputs)["sliding_attention"]
        assert local[:, 0].equal(ours[1])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_flex_on_a_gpu_has_gradients():
    L, S = 37, 53
    inputs = [x.cuda().requires_grad_() for x in tensors(L, S)]
    block_mask = window_block_mask(L, S, 11, is_causal=True, device="cuda")
    alibi = Alibi(H)
    bias = alibi.bias(L, S, dtype=torch.float64).cuda()
    score_mod = alibi_mod(alibi, L, S, device="cuda")
    output = flex_attention(*inputs, score_mod, block_mask)
    seen = window_mask(L, S, 11, device="cuda")
    expected = attention(*inputs, mask=seen, bias=bias, is_causal=True)
    assert_equal(output, expected, atol=1e-10)
    probe = torch.randn_like(output)
    ours = torch.autograd.grad(output, inputs, probe)
    theirs = torch.autograd.grad(expected, inputs, probe)
    for gradient, truth in zip(ours, theirs, strict=True):
        assert_equal(gradient, truth, atol=1e-10)


WRONG = [
    (lambda: causal_mod(2.0, 3), TypeError, "L must be an integer, got float"),
    (lambda: causal_mod(2, -1), ValueError, "S must be at least 0, got -1"),
    (lambda: window_mod(2, 3, 0), ValueError, "window must be at least 1, got 0"),
    (lambda: window_mod(-1, 3, 1), ValueError, "L must be at least 0, got -1"),
    (lambda: strided_mod(2, 3, 0), ValueError, "stride must be at least 1, got 0"),
    (lambda: strided_mod(2, 3, True), TypeError, "stride must be an integer, got bool"),
    (
        lambda: padding_mod(torch.tensor([1, 4]), 3),
        ValueError,
        "lengths must be in 0..S = 0..3, got 4",
    ),
    (
        lambda: padding_mod([1, 2], 3),
        TypeError,
        "lengths must be a tensor of integers, got list",
    ),
    (lambda: padding_mod(torch.tensor([1]), -1), ValueError, "S must be at least 0, got -1"),
    (lambda: alibi_mod(Alibi(2), -1, 3), ValueError, "L must be at least 0, got -1"),
    (lambda: window_block_mask(0, 3), ValueError, "L must be at least 1, got 0"),
    (lambda: window_block_mask(3, 0), ValueError, "S must be at least 1, got 0"),
    (lambda: window_block_mask(3, 3, 0), ValueError, "window must be at least 1, got 0"),
    (
        lambda: window_block_mask(3, 3, block_size=0),
        ValueError,
        "block_size must be at least 1, got 0",
    ),
    (lambda: window_block_mask(3, 3, 2.0), TypeError, "window must be an integer, got float"),
]


@pytest.mark.parametrize(("call", "kind", "message"), WRONG)
def test_errors_name_argument_rule_and_value(call, kind, message):
    with pytest.raises(kind) as caught:
        call()
    assert str(caught.value) == message
