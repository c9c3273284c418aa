"""A language model around `mhattn.MultiHeadAttention`: the Llama architecture, and its weights.

`load_gguf` needs the packages gguf and tokenizers; ``pip install "mhattn[models]"`` brings both.
"""

from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mhattn.core.cache import KVCache
from mhattn.core.modules import MultiHeadAttention
from mhattn.core.positions import Rotary
from mhattn.models import checks as check
from mhattn.models.gguf_file import read_gguf

if TYPE_CHECKING:
    from tokenizers import Tokenizer

__all__ = ["LanguageModel", "LanguageModelBlock", "load_gguf", "write"]


# --8<-- [start:LanguageModelBlock]
class LanguageModelBlock(nn.Module):
    """Attention, then an MLP with a gate; each adds to ``x``.

    Each reads a normalised copy. The norm is RMSNorm (Zhang and Sennrich 2019,
    https://arxiv.org/abs/1910.07467), the MLP SwiGLU (Shazeer 2020,
    https://arxiv.org/abs/2002.05202). Nothing has a bias.

    Args:
        embed_dim: width of a token's vector, E.
        num_heads: heads of the query; they share ``embed_dim`` out.
        num_kv_heads: heads of the key and value.
        mlp_dim: width inside the MLP.
        base: of the rotary positions; see `mhattn.Rotary`.
        eps: what the norms add to the mean square.

    Raises:
        TypeError: a size is not an integer.
        ValueError: a size is less than 1, or does not divide what it must; see
            `mhattn.MultiHeadAttention`.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        num_kv_heads: int,
        mlp_dim: int,
        base: float,
        eps: float,
    ) -> None:
        super().__init__()
        check.divides("num_heads", num_heads, "embed_dim", embed_dim)
        check.at_least("mlp_dim", mlp_dim, 1)
        self.attention = MultiHeadAttention(
            embed_dim,
            num_heads,
            num_kv_heads=num_kv_heads,
            bias=False,
            position=Rotary(embed_dim // num_heads, base),
        )
        self.attention_norm = nn.RMSNorm(embed_dim, eps)
        self.mlp_norm = nn.RMSNorm(embed_dim, eps)
        self.gate = nn.Linear(embed_dim, mlp_dim, bias=False)
        self.up = nn.Linear(embed_dim, mlp_dim, bias=False)
        self.down = nn.Linear(mlp_dim, embed_dim, bias=False)

    def forward(
        self,
        x: Tensor,
        **options: Any,
    ) -> tuple[Tensor, Tensor | None]:
        """Add to each token's vector what attention and the MLP make of it.

        Args:
            x: ``(B, L, E)``.
            **options: for the attention: ``cache``, ``return_weights``.

        Returns:
            ``(B, L, E)``, and the weights ``(B, H, L, S)`` if they were asked for.
        """
        normed = self.attention_norm(x)
        added = self.attention(normed, is_causal=True, **options)
        weights = None
        if isinstance(added, tuple):  # (B, L, E), (B, H, L, S)
            added, weights = added
        x = x + added
        normed = self.mlp_norm(x)
        gated = F.silu(self.gate(normed)) * self.up(normed)
        return x + self.down(gated), weights
        # --8<-- [end:LanguageModelBlock]


# --8<-- [start:LanguageModel]
class LanguageModel(nn.Module):
    """From tokens to a score for each possible next token: the Llama architecture.

    Touvron et al. (2023), https://arxiv.org/abs/2302.13971, with grouped heads and an output that
    is tied to the embedding.

    Args:
        vocab_size: number of different tokens.
        num_layers: number of blocks.
        embed_dim: width of a token's vector, E.
        num_heads: heads of the query in each block; they share ``embed_dim`` out.
        num_kv_heads: heads of the key and value in each block.
        mlp_dim: width inside the MLP of each block.
        base: of the rotary positions; see `mhattn.Rotary`.
        eps: what the norms add to the mean square.

    Raises:
        TypeError: a size is not an integer.
        ValueError: a size is less than 1, or does not divide what it must; see
            `mhattn.MultiHeadAttention`.

    Examples:
        >>> sizes = {"num_heads": 6, "num_kv_heads": 2, "mlp_dim": 30}
        >>> model = LanguageModel(11, 3, embed_dim=24, **sizes, base=100.0, eps=1e-5)
        >>> tokens = torch.tensor([[1, 2, 3, 4]])
        >>> model(tokens).shape
        torch.Size([1, 4, 11])
        >>> logits, weights = model(tokens, return_weights=True)
        >>> weights.shape
        torch.Size([1, 3, 6, 4, 4])
    """

    def __init__(
        self,
        vocab_size: int,
        num_layers: int,
        *,
        embed_dim: int,
        num_heads: int,
        num_kv_heads: int,
        mlp_dim: int,
        base: float,
        eps: float,
    ) -> None:
        super().__init__()
        check.at_least("vocab_size", vocab_size, 1)
        check.at_least("num_layers", num_layers, 1)
        self.embedding = nn.Embedding(vocab_size, embed_dim)
        self.blocks = nn.ModuleList()
        for _ in range(num_layers):
            block = LanguageModelBlock(embed_dim, num_heads, num_kv_heads, mlp_dim, base, eps)
            self.blocks.append(block)
        self.norm = nn.RMSNorm(embed_dim, eps)

    def forward(
        self,
        tokens: Tensor,
        *,
        caches: Sequence[KVCache] | None = None,
        return_weights: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Score each possible next token, after each token.

        Args:
            tokens: integers ``(B, L)``.
            caches: one for each block, which hold the keys and values of earlier tokens.
            return_weights: also return the weights of every head.

        Returns:
            ``(B, L, vocab_size)``, or that and the weights, ``(B, num_layers, H, L, S)``.

        Raises:
            TypeError: tokens is not a tensor of integers.
            ValueError: tokens does not have two axes, or there is not one cache for each block.
        """
        check.tokens(tokens)
        check.caches(caches, len(self.blocks))
        options: dict[str, Any] = {"return_weights": return_weights}
        x = self.embedding(tokens)  # (B, L, E)
        kept = []
        for i, block in enumerate(self.blocks):
            options["cache"] = caches[i] if caches else None
            x, weights = block(x, **options)
            kept.append(weights)  # (B, H, L, S)
        x = self.norm(x)
        logits = F.linear(x, self.embedding.weight)  # (B, L, V)
        if not return_weights:
            return logits
        return logits, torch.stack(kept, dim=1)
        # --8<-- [end:LanguageModel]


# --8<-- [start:write]
@torch.no_grad()
def write(model: LanguageModel, tokens: Tensor, count: int) -> Tensor:
    """Append the token with the highest score, again and again.

    Args:
        model: it is called once with all tokens, then with one at a time and a cache.
        tokens: integers ``(B, L)``.
        count: how many tokens are appended.

    Returns:
        ``(B, L + count)``.

    Raises:
        TypeError: tokens is not a tensor of integers, or count not an integer.
        ValueError: tokens does not have two axes, or count is less than 1.

    Examples:
        >>> sizes = {"num_heads": 2, "num_kv_heads": 1, "mlp_dim": 9}
        >>> model = LanguageModel(5, 1, embed_dim=4, **sizes, base=100.0, eps=1e-5)
        >>> write(model, torch.tensor([[0, 1, 2]]), count=7).shape
        torch.Size([1, 10])
    """
    check.tokens(tokens)
    check.at_least("count", count, 1)
    room = tokens.shape[1] + count
    caches = [KVCache(max_len=room) for _ in model.blocks]
    new = tokens
    for _ in range(count):
        logits = model(new, caches=caches)  # (B, L, V)
        new = logits[:, -1:].argmax(dim=-1)  # (B, 1)
        tokens = torch.cat([tokens, new], dim=1)
    return tokens
    # --8<-- [end:write]


# --8<-- [start:load_gguf]
NAMES = {
    "blk": "blocks",
    "token_embd": "embedding",
    "output_norm": "norm",
    "attn_norm": "attention_norm",
    "attn_q": "attention.q_proj",
    "attn_k": "attention.k_proj",
    "attn_v": "attention.v_proj",
    "attn_output": "attention.out_proj",
    "ffn_norm": "mlp_norm",
    "ffn_gate": "gate",
    "ffn_up": "up",
    "ffn_down": "down",
}


def load_gguf(path: str | PathLike[str]) -> tuple[LanguageModel, "Tokenizer"]:
    """Read a model of the Llama architecture, and its tokenizer, from llama.cpp's format.

    Weights of any type of the format are computed back to float32.

    Args:
        path: of a GGUF file.

    Returns:
        The model, without gradients, and what turns text into tokens and back.

    Raises:
        ValueError: the file is no GGUF file, or holds another architecture or tokenizer.
        FileNotFoundError: there is no such file.

    Examples:
        >>> from mhattn.lessons.files import cache_folder
        >>> path = cache_folder() / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
        >>> if path.exists():  # mhattn.lessons.data_file fetches it
        ...     model, tokenizer = load_gguf(path)
        ...     assert model.embedding.weight.shape == (49152, 576)
    """
    about, tensors = read_gguf(path)
    for key, known in KNOWN.items():
        if (got := about.get(key)) != known:
            rule = f"{key} in {path} must be {known!r}"
            raise ValueError(f"{rule}, got {got!r}")
    heads = {"attn_q": about["llama.attention.head_count"]}
    heads["attn_k"] = about["llama.attention.head_count_kv"]
    model = LanguageModel(
        vocab_size=about["llama.vocab_size"],
        num_layers=about["llama.block_count"],
        embed_dim=about["llama.embedding_length"],
        num_heads=heads["attn_q"],
        num_kv_heads=heads["attn_k"],
        mlp_dim=about["llama.feed_forward_length"],
        base=about["llama.rope.freq_base"],
        eps=about["llama.attention.layer_norm_rms_epsilon"],
    )
    state = {}
    for name, rows in tensors:
        parts = name.split(".")  # blk, 0, attn_q, weight
        if parts[-2] in heads:
            rows = halves_apart(rows, heads[parts[-2]])
        ours = [NAMES.get(part, part) for part in parts]
        state[".".join(ours)] = rows
    model.load_state_dict(state, assign=True)
    return model.requires_grad_(False), tokenizer_of(about)
    # --8<-- [end:load_gguf]


# --8<-- [start:halves_apart]
def halves_apart(rows: Tensor, num_heads: int) -> Tensor:
    """Order the rows of a projection as `mhattn.Rotary` turns them.

    The format stores the two rows of each turned pair next to each other: rows 0 and 1, 2 and 3,
    ... of a head. Rotary turns feature ``i`` together with ``i + D / 2``.

    Args:
        rows: ``(H * D, E)``, pair by pair.
        num_heads: ``H``.

    Returns:
        ``(H * D, E)``: in each head first one of each pair, then the others.
    """
    pairs = rows.unflatten(0, (num_heads, -1, 2))  # (H, D / 2, 2, E)
    halves: Tensor = pairs.transpose(1, 2)  # (H, 2, D / 2, E)
    return halves.flatten(0, 2)  # (H * D, E)
    # --8<-- [end:halves_apart]


# --8<-- [start:tokenizer_of]
KNOWN = {
    "general.architecture": "llama",
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "smollm",
}
CONTROL = 3  # the type of a token that no text spells


def tokenizer_of(about: dict[str, Any]) -> "Tokenizer":
    """Byte-level byte-pair encoding in which each digit is a token (Radford et al. 2019).

    Args:
        about: the fields of a GGUF file.
    """
    from tokenizers import Tokenizer, decoders, models
    from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence

    tokens = about["tokenizer.ggml.tokens"]
    numbers = {token: i for i, token in enumerate(tokens)}
    lines = about["tokenizer.ggml.merges"]
    merges = [tuple(line.split(" ")) for line in lines]
    tokenizer = Tokenizer(models.BPE(numbers, merges))
    digits = Digits(individual_digits=True)
    words = ByteLevel(add_prefix_space=False)
    tokenizer.pre_tokenizer = Sequence([digits, words])
    tokenizer.decoder = decoders.ByteLevel()
    types = about["tokenizer.ggml.token_type"]
    pairs = zip(tokens, types, strict=True)
    marks = [token for token, kind in pairs if kind == CONTROL]
    tokenizer.add_special_tokens(marks)
    return tokenizer
    # --8<-- [end:tokenizer_of]
