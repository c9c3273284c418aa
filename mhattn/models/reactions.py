"""An encoder with one block, used again and again: the architecture of ALBERT, and its weights.

`load_rxnmapper` needs the package tokenizers; ``pip install "mhattn[models]"`` brings it.
"""

import io
import json
import zipfile
from os import PathLike
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from mhattn.models import checks as check
from mhattn.models.encoder import Encoder

if TYPE_CHECKING:
    from tokenizers import Tokenizer

__all__ = ["SharedEncoder", "load_rxnmapper"]


# --8<-- [start:SharedEncoder]
class SharedEncoder(Encoder):
    """An encoder whose layers share one block's weights: ALBERT's architecture.

    Lan et al. (2020), https://arxiv.org/abs/1909.11942. Tokens and positions have narrower vectors
    than the block; a matrix brings their normalised sum to the block's width.

    Args:
        vocab_size: number of different tokens.
        max_len: number of positions.
        num_layers: how often the block is used.
        token_dim: width of the embeddings.
        embed_dim: width of a token's vector in the block, E.
        num_heads: heads of the block.
        mlp_dim: width inside the block's MLP.
        eps: what the norms add to the variance.

    Raises:
        TypeError: a size is not an integer.
        ValueError: a size is less than 1, or num_heads does not divide embed_dim.

    Examples:
        >>> sizes = {"token_dim": 5, "embed_dim": 24, "num_heads": 6, "mlp_dim": 30}
        >>> model = SharedEncoder(vocab_size=11, max_len=7, num_layers=3, **sizes)
        >>> vectors, weights = model(torch.tensor([[1, 2, 3, 4]]))
        >>> vectors.shape, weights.shape
        (torch.Size([1, 4, 24]), torch.Size([1, 3, 6, 4, 4]))
        >>> len(model.blocks)
        1
    """

    def __init__(
        self,
        vocab_size: int,
        max_len: int,
        num_layers: int,
        *,
        token_dim: int,
        embed_dim: int,
        num_heads: int,
        mlp_dim: int,
        eps: float = 1e-12,
    ) -> None:
        sizes = {"embed_dim": embed_dim, "num_heads": num_heads, "mlp_dim": mlp_dim}
        check.at_least("token_dim", token_dim, 1)
        check.at_least("num_layers", num_layers, 1)
        super().__init__(vocab_size, max_len, 1, **sizes, eps=eps)
        self.embedding = nn.Embedding(vocab_size, token_dim)
        self.positions = nn.Embedding(max_len, token_dim)
        self.norm = nn.LayerNorm(token_dim, eps)
        self.widen = nn.Linear(token_dim, embed_dim)
        self.num_layers = num_layers

    def forward(self, tokens: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Compute a vector for each token.

        Args:
            tokens: integers ``(B, L)``.
            mask: booleans that broadcast to ``(B, H, L, L)``, as from
                `mhattn.padding_mask`. True: may attend. Default: all tokens see all.

        Returns:
            ``(B, L, E)``, and the weights of every use of every head,
            ``(B, num_layers, H, L, L)``.

        Raises:
            TypeError: tokens is not a tensor of integers, or mask not of booleans.
            ValueError: tokens does not have two axes or is longer than the positions, or mask
                does not fit.
        """
        check.tokens(tokens)
        L, most = tokens.shape[1], self.positions.num_embeddings
        check.at_most("tokens", L, "max_len", most)
        x = self.embedding(tokens) + self.positions.weight[:L]
        x = self.widen(self.norm(x))  # (B, L, E)
        (block,) = self.blocks
        kept = []
        for _ in range(self.num_layers):
            x, weights = block(x, mask)
            kept.append(weights)  # (B, H, L, L)
        return x, torch.stack(kept, dim=1)
        # --8<-- [end:SharedEncoder]


# --8<-- [start:load_rxnmapper]
LAYER = "albert.encoder.albert_layer_groups.0.albert_layers.0"
NAMES = {
    "embedding": "albert.embeddings.word_embeddings",
    "positions": "albert.embeddings.position_embeddings",
    "norm": "albert.embeddings.LayerNorm",
    "widen": "albert.encoder.embedding_hidden_mapping_in",
    "attention.q_proj": f"{LAYER}.attention.query",
    "attention.k_proj": f"{LAYER}.attention.key",
    "attention.v_proj": f"{LAYER}.attention.value",
    "attention.out_proj": f"{LAYER}.attention.dense",
    "attention_norm": f"{LAYER}.attention.LayerNorm",
    "up": f"{LAYER}.ffn",
    "down": f"{LAYER}.ffn_output",
    "mlp_norm": f"{LAYER}.full_layer_layer_norm",
}
GUESS = ("dense", "", "LayerNorm", "decoder")  # the second part has no weights


def load_rxnmapper(
    path: str | PathLike[str],
) -> tuple[SharedEncoder, nn.Sequential, "Tokenizer"]:
    """Read the model of RXNMapper from its wheel, of which nothing is installed or run.

    Schwaller et al. (2021), https://doi.org/10.1126/sciadv.abe4166: an encoder of chemical
    reactions, trained to guess hidden tokens.

    Args:
        path: of the wheel.

    Returns:
        The encoder, the layers that make scores of all tokens from a token's vector (to guess
        what is hidden there), both without gradients, and what turns a reaction into tokens.

    Raises:
        ValueError: the file is no wheel with such a model.
        FileNotFoundError: there is no such file.

    Examples:
        >>> from mhattn.lessons.files import cache_folder
        >>> path = cache_folder() / "models" / "rxnmapper-0.4.3-py3-none-any.whl"
        >>> if path.exists():  # mhattn.lessons.data_file fetches it
        ...     model, guess, tokenizer = load_rxnmapper(path)
        ...     assert (len(model.blocks), model.num_layers) == (1, 12)
    """
    files = files_of(path)
    stored = torch.load(
        io.BytesIO(files["pytorch_model.bin"]), map_location="cpu", weights_only=True
    )
    segment = stored["albert.embeddings.token_type_embeddings.weight"][0]  # the one in use
    stored["albert.embeddings.position_embeddings.weight"] += segment
    with torch.device("meta"):  # no weights yet
        model, guess = built(json.loads(files["config.json"]))
    state = {}
    for name in model.state_dict():
        *parts, last = name.split(".")  # blocks, 0, attention, q_proj, weight
        inside = parts[2:] if parts[0] == "blocks" else parts
        state[name] = stored[f"{NAMES['.'.join(inside)]}.{last}"]
    model.load_state_dict(state, assign=True)
    state = {}
    for name in guess.state_dict():
        place, last = name.split(".")
        state[name] = stored[f"predictions.{GUESS[int(place)]}.{last}"]
    guess.load_state_dict(state, assign=True)
    tokenizer = tokenizer_of(files["vocab.txt"].decode().split())
    return model.requires_grad_(False), guess.requires_grad_(False), tokenizer
    # --8<-- [end:load_rxnmapper]


def files_of(path: str | PathLike[str]) -> dict[str, bytes]:
    """What lies in the wheel beside the weights, by the files' names."""
    rule = f"{path} must be a wheel with one pytorch_model.bin"
    try:
        with zipfile.ZipFile(path) as wheel:
            every = [PurePosixPath(name) for name in wheel.namelist()]
            homes = [name.parent for name in every if name.name == "pytorch_model.bin"]
            if len(homes) != 1:
                raise ValueError(f"{rule}, got {len(homes)}")
            return {n.name: wheel.read(str(n)) for n in every if n.parent == homes[0]}
    except zipfile.BadZipFile:
        raise ValueError(f"{rule}, got no zip") from None


def built(config: dict[str, Any]) -> tuple[SharedEncoder, nn.Sequential]:
    """The encoder of these sizes, and the layers that guess a token; both without weights."""
    V, E, token_dim = config["vocab_size"], config["hidden_size"], config["embedding_size"]
    model = SharedEncoder(
        V,
        config["max_position_embeddings"],
        config["num_hidden_layers"],
        token_dim=token_dim,
        embed_dim=E,
        num_heads=config["num_attention_heads"],
        mlp_dim=config["intermediate_size"],
        eps=config["layer_norm_eps"],
    )
    norm = nn.LayerNorm(token_dim, config["layer_norm_eps"])
    return model, nn.Sequential(nn.Linear(E, token_dim), nn.GELU(), norm, nn.Linear(token_dim, V))


# --8<-- [start:reaction_tokenizer]
TOKEN = (  # an atom in brackets, an atom of one or two letters, a bond, a ring's number, a sign
    r"\[[^\]]+\]|Br?|Cl?|N|O|S|P|F|I|b|c|n|o|s|p|\(|\)|\.|=|#|-|\+|\\|/|:|~|@|\?|>>?|\*|\$"
    r"|%[0-9]{2}|[0-9]"
)


def tokenizer_of(vocabulary: list[str]) -> "Tokenizer":
    """Cuts a reaction's SMILES into atoms, bonds and signs; all that is none of them is left out.

    The pattern is that of RXNMapper, after Schwaller et al. (2019),
    https://arxiv.org/abs/1811.02633.
    """
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers, processors

    numbers = {token: number for number, token in enumerate(vocabulary)}
    tokenizer = Tokenizer(models.WordLevel(numbers, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(TOKEN), "removed", invert=True)
    marks = [(mark, numbers[mark]) for mark in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing("[CLS] $0 [SEP]", special_tokens=marks)
    tokenizer.enable_padding(pad_id=numbers["[PAD]"], pad_token="[PAD]")
    return tokenizer
    # --8<-- [end:reaction_tokenizer]
