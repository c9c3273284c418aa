"""Functions as they were when runs that took hours were filed, and that were written anew since.

Each returns the same as today's, to the last bit, which a test compares. So a run that needs
today's is as good as it was: by `fingerprints.AS_FILED` the text of these counts in its place.
"""

from os import PathLike

import torch
from tokenizers import Tokenizer

from mhattn.models.language_model import KNOWN, NAMES, LanguageModel, halves_apart, tokenizer_of


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
    from gguf import GGUFReader, dequantize

    reader = GGUFReader(path)
    fields = reader.fields.items()
    about = {name: field.contents() for name, field in fields}
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
    for stored in reader.tensors:
        parts = stored.name.split(".")  # blk, 0, attn_q, weight
        numbers = dequantize(stored.data, stored.tensor_type)
        rows = torch.tensor(numbers)
        if parts[-2] in heads:
            rows = halves_apart(rows, heads[parts[-2]])
        ours = [NAMES.get(part, part) for part in parts]
        state[".".join(ours)] = rows
    model.load_state_dict(state, assign=True)
    return model.requires_grad_(False), tokenizer_of(about)
