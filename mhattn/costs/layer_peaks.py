"""How much memory a layer holds at its worst moment: exact integers, no torch.

A pass holds tensors one after another; its peak is the largest sum of those that are there at the
same time. The functions here name these moments, for each kind of `mhattn.costs.LayerCost`,
as the package's code goes through them.
"""

from collections.abc import Callable

from mhattn.costs import integers as check
from mhattn.costs.layer_costs import LATENT, LayerCost, far_rows, fused_width, padded

__all__ = ["peak_activation_bytes", "training_peak_bytes"]


# --8<-- [start:peak_activation_bytes]
def peak_activation_bytes(layer: LayerCost) -> int:
    """Count the most bytes that a forward pass without gradients holds at any one time.

    From the projections to its end, the layer holds the queries, keys and values. Beside them, the
    worst moment is one of two:

    - inside of the core, with all that it makes on the way to the heads;
    - at the end: the heads, a copy of them if they do not lie side by side yet, and the output.

    What the core makes, and which tensors torch has to copy, is said at the function of each kind
    below. The result is counted and the input is not, as in `mhattn.inside.peak_bytes`. Left out
    are the buffers that stay the same when the text gets longer: a tile of the fused kernel, or of
    the package's own loops, and the tables of cosines. They take up to a few MiB.

    Args:
        layer: kind and sizes. Absorbed layers have to be asked for: ``absorb=True``.

    Returns:
        An exact number.

    Examples:
        Twice the tokens take twice the memory, or, with all weights in it, nearly four times.

        >>> sizes = {"embed_dim": 512, "num_heads": 8, "head_dim": 64}
        >>> for kind in ("fused", "written"):
        ...     layers = (LayerCost(kind=kind, **sizes, tokens=n) for n in (1024, 2048))
        ...     print(kind, *(peak_activation_bytes(layer) / 2**20 for layer in layers))
        fused 10.0 20.0
        written 72.0 276.0
    """
    output = numbers(layer, layer.embed_dim)
    held, inside, heads = MOMENTS[layer.kind](layer)
    return held + max(inside, heads + output)
    # --8<-- [end:peak_activation_bytes]


# --8<-- [start:training_peak_bytes]
def training_peak_bytes(layer: LayerCost) -> int:
    """Count the most bytes that a forward and a backward pass hold at any one time.

    The worst moment is that of the scores' gradients. By then there are the output, the gradients
    of its matrix and bias, and:

    - in a fused kernel, what the forward pass has kept, queries, keys, values, heads and a number
      for each row of scores, and a gradient for each of the four. Grouped heads without a mask
      need the heads' gradient in two orders;
    - written out, three tables, the weights, their gradient and that of the scores, and three times
      as many numbers as there are in the queries: scaled queries, keys and the values' gradient.
      A causal mask adds its own bytes, and makes the forward pass the worse one: that has three
      tables, too, before and after the mask and after the softmax.

    If a fused layer is much wider than its heads together, the end is worse: the output, the
    gradients of the input by way of keys and of values, their sum, and the queries' gradient.

    The input and the output's gradient are there before, as are the parameters. Other kinds
    compute by blocks, whose number decides when a gradient is there: no closed form is known here
    for them, so measure them with `mhattn.inside.peak_bytes`.

    Args:
        layer: kind and sizes, in float32 or float64 if written out.

    Returns:
        An exact number.

    Raises:
        ValueError: the kind is neither ``"fused"`` nor ``"written"``, or it is written out with
            numbers of two bytes.

    Examples:
        >>> sizes = {"embed_dim": 512, "num_heads": 8, "head_dim": 64, "tokens": 2048}
        >>> training_peak_bytes(LayerCost(kind="fused", **sizes)) / 2**20
        37.064453125
    """
    if layer.kind not in ("fused", "written"):
        raise ValueError(f"kind must be fused or written, got {layer.kind!r}")
    if layer.kind == "fused":
        return fused_training(layer)
    check.at_least("bytes_per_number", layer.bytes_per_number, 4)
    query, tables = queries(layer), 3 * table(layer)
    if not layer.is_causal:
        return tables + 3 * query + output_and_matrix(layer)
    mask = layer.tokens**2  # a boolean for each pair
    copy = query if layer.batch > 1 and not is_grouped(layer) else 0
    forward = 2 * query + 2 * keys(layer) + repeated(layer) + copy + 2 * mask
    return tables + max(forward, 3 * query + mask + output_and_matrix(layer))
    # --8<-- [end:training_peak_bytes]


def fused_training(layer: LayerCost) -> int:
    query, key = queries(layer), keys(layer)
    twice = query if is_packed(layer) and layer.kv_heads > 1 else 0
    scores = 4 * query + 4 * key + twice + sums(layer)
    matrices = 2 * (layer.embed_dim + layer.bias) * layer.kv_heads * layer.head_dim
    end = query + 3 * numbers(layer, layer.embed_dim) + matrices * layer.bytes_per_number
    return output_and_matrix(layer) + max(scores, end)


def output_and_matrix(layer: LayerCost) -> int:
    """Bytes of the output, and of the gradients of its projection."""
    matrix = (layer.num_heads * layer.head_dim + layer.bias) * layer.embed_dim
    return numbers(layer, layer.embed_dim) + matrix * layer.bytes_per_number


def numbers(layer: LayerCost, width: int, size: int | None = None) -> int:
    """Bytes of so many numbers for each token."""
    size = layer.bytes_per_number if size is None else size
    return layer.batch * layer.tokens * width * size


def wide(layer: LayerCost) -> int:
    """Bytes of a number in float32 at least."""
    return max(4, layer.bytes_per_number)


def is_half(layer: LayerCost) -> bool:
    return layer.bytes_per_number < 4


def queries(layer: LayerCost) -> int:
    return numbers(layer, layer.num_heads * layer.head_dim)


def keys(layer: LayerCost) -> int:
    return numbers(layer, layer.kv_heads * layer.head_dim)


def table(layer: LayerCost) -> int:
    """Bytes of all scores, in float32 at least."""
    return numbers(layer, layer.num_heads * layer.tokens, wide(layer))


def sums(layer: LayerCost) -> int:
    """What a fused kernel computes beside its output: a number for each row of scores."""
    return numbers(layer, layer.num_heads, wide(layer))


def is_grouped(layer: LayerCost) -> bool:
    return layer.kv_heads < layer.num_heads


def is_packed(layer: LayerCost) -> bool:
    """Whether the queries of a group become the rows of one product, which takes a copy."""
    return is_grouped(layer) and not layer.is_causal


def repeated(layer: LayerCost) -> int:
    """Keys and values once for each head of the query, if there are fewer."""
    return 2 * queries(layer) if is_grouped(layer) else 0


# What is held all the time, inside of the core beside it, and at the end with the heads.

Moments = tuple[int, int, int]


def fused(layer: LayerCost) -> Moments:
    """The kernel writes heads where queries would lie: side by side, unless they were packed."""
    query = queries(layer)
    packed = query if is_packed(layer) else 0
    return query + 2 * keys(layer), packed + query + sums(layer), query + packed


def written(layer: LayerCost) -> Moments:
    """One table, overwritten, and two where a mask makes a second one; narrow weights are new.

    A product of many matrices wants each of them in one piece: with several sequences, scaled
    queries are copied for it, and keys that are not repeated.
    """
    query, key, scores = queries(layer), keys(layer), table(layer)
    ratio = wide(layer) // layer.bytes_per_number
    copies = ratio * query  # scaled queries
    if layer.batch > 1:
        copies += ratio * query if is_grouped(layer) else 2 * ratio * query
    masks = 2 * layer.tokens**2 if layer.is_causal else 0
    narrow = scores // ratio if is_half(layer) else 0
    inside = max(copies + scores, (2 if layer.is_causal else 1) * scores + max(masks, narrow))
    weights = narrow if is_half(layer) else scores
    held = query + 2 * key
    return held, repeated(layer) + inside, weights + 2 * query


def alibi(layer: LayerCost) -> Moments:
    """Distances in int64, twice, and in float32; then the bias, and with the mask another one."""
    held, inside, heads = fused(layer)
    pairs = layer.tokens**2
    bias = layer.num_heads * pairs
    narrow = bias * layer.bytes_per_number
    kept = bias * wide(layer) if is_half(layer) else 0  # the wide one, as the layer was given it
    made = (2 * 8 + wide(layer)) * pairs + bias * wide(layer)
    masked = kept + 2 * pairs + 2 * narrow if layer.is_causal else 0
    return held, max(made, masked, kept + narrow + inside), heads


def by_blocks(layer: LayerCost) -> Moments:
    """Heads are written into one tensor, head by head: the output's matrix needs a copy."""
    query = queries(layer)
    return query + 2 * keys(layer), 2 * query, 2 * query


def relative(layer: LayerCost) -> Moments:
    """Scaled queries and heads; in float32, and so are keys and values."""
    ratio = wide(layer) // layer.bytes_per_number
    query, key = queries(layer), keys(layer)
    wider = 2 * ratio * key if is_half(layer) else 0
    narrow = query if is_half(layer) else 0
    inside = wider + 2 * ratio * query + max(ratio * repeated(layer), narrow)
    return query + 2 * key, inside, 2 * query


def linear(layer: LayerCost) -> Moments:
    """The chunks' outputs and all of them joined, in float32, then as narrow as the queries."""
    ratio = wide(layer) // layer.bytes_per_number
    query = queries(layer)
    narrow = query if is_half(layer) else 0
    held = query + 2 * keys(layer)
    return held, repeated(layer) + 2 * ratio * query + narrow, 2 * query


def local(layer: LayerCost) -> Moments:
    """The parts' outputs and all of them joined.

    Heads and sequences become one axis: with several sequences, queries are copied for it, and
    keys and values that are not repeated.
    """
    query = queries(layer)
    copies = 3 * query if layer.batch > 1 else repeated(layer)
    return query + 2 * keys(layer), copies + 2 * query, 2 * query


def strided(layer: LayerCost) -> Moments:
    """The window's output and its log-sum-exp, and with them padded queries, keys, values, heads.

    They are rows of the stride, those of the window left out; all in float32.
    """
    query, heads = queries(layer), layer.num_heads
    ratio = wide(layer) // layer.bytes_per_number
    wider = 3 * ratio * query if is_half(layer) else repeated(layer)
    near = numbers(layer, heads * (layer.head_dim + 1), wide(layer))
    far = layer.batch * heads * far_rows(layer) * layer.stride * wide(layer)
    inside = wider + near + far * (4 * padded(layer.head_dim) + 1)
    return query + 2 * keys(layer), inside, 2 * query


def latent(layer: LayerCost) -> Moments:
    """Queries before and after their turn, and what is kept; keys and values of all heads.

    The kernel wants all of them equally wide: what is narrower is copied.
    """
    heads, key = layer.num_heads, layer.head_dim + layer.qk_rope_head_dim
    value, common = layer.v_head_dim, fused_width(layer)
    copies = common * ((2 if key < common else 0) + (1 if value < common else 0))
    inside = numbers(layer, heads * (key + value + copies + common)) + sums(layer)
    return latent_held(layer), inside, numbers(layer, heads * (common + value))


def absorbed(layer: LayerCost) -> Moments:
    """Queries in the space of the latents, without and with their turned part, and their heads.

    To come back from there, several sequences are copied into one product.
    """
    heads, rank, common = layer.num_heads, layer.kv_lora_rank, fused_width(layer)
    back = layer.v_head_dim + (rank if layer.batch > 1 else 0)
    inside = numbers(layer, heads * (rank + 2 * common))
    inside += max(sums(layer), numbers(layer, heads * back))
    return latent_held(layer), inside, numbers(layer, heads * 2 * layer.v_head_dim)


def latent_held(layer: LayerCost) -> int:
    turned = layer.qk_rope_head_dim
    queries = layer.num_heads * (2 * (layer.head_dim + turned) + turned)
    return numbers(layer, queries + layer.kv_lora_rank + turned)


MOMENTS: dict[str, Callable[[LayerCost], Moments]] = {
    "fused": fused,
    "written": written,
    "alibi": alibi,
    "learned": by_blocks,
    "relative": relative,
    "tiled": by_blocks,
    "linear": linear,
    "local": local,
    "strided": strided,
    **dict(zip(LATENT, (latent, absorbed), strict=True)),
}
