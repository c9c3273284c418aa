"""A gallery of all heads of a model, as files: maps, statistics, similarity, and a page of them.

    python -m mhattn.show.gallery maps.pt --tokens tokens.json --out gallery
    python -m mhattn.show.gallery --model folder --text "The cat saw the cat" --out gallery

The first reads maps that were saved with ``torch.save`` or ``numpy.savez``, one array a layer, and
a list of tokens in JSON. The second runs a model of transformers that lies in a folder; nothing is
downloaded. Only this module of the package writes files, and only into the folder that it is given.
"""

import argparse
import csv
import io
import json
import os
import re
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mhattn.core.masks import causal_mask
from mhattn.inside.heads import (
    attention_distance,
    attention_entropy,
    attention_share,
    find_roles,
    head_divergence,
    head_patterns,
    largest_weight,
)
from mhattn.show.gallery_page import (
    Layer,
    digits,
    draw_layer,
    draw_overview,
    draw_similarity,
    names_of_heads,
    page,
)

__all__ = ["write_gallery"]

PATTERNS = ("self", "previous", "next", "first", "induction")
OURS = re.compile(r"index\.html|(statistics|similarity)\.csv|(similarity|layer-\d+)\.svg")


def write_gallery(
    maps: Sequence[Tensor],
    folder: str | os.PathLike[str],
    *,
    tokens: Sequence[str] | None = None,
    keys: Sequence[str] | None = None,
    names: Sequence[str] | None = None,
    title: str = "All heads",
    force: bool = False,
) -> list[Path]:
    """Save maps, statistics and similarity of all heads of a model as files.

    ``index.html`` shows everything and needs no other file. It begins with small maps of all heads;
    in those of more than 24 keys or queries, a cell is the largest weight of its part of the map.
    ``layer-1.svg`` and so on are its figures. ``statistics.csv`` has a row for each head: its share
    of attention for each pattern of `mhattn.inside.head_patterns`, beside that of even weights
    (``_even``) and the share that only one of a hundred random patterns exceeds (``_redrawn``, from
    `mhattn.inside.find_roles`); a head above it has that role. ``similarity.csv`` has 1 less
    `mhattn.inside.head_divergence` for each pair of heads. Layers and heads are counted from 1 in
    all of them. A cell is empty where no query has a choice.

    If a layer gives no weight to any key behind its query, its queries are taken to see only the
    keys up to their own. Otherwise they see all.

    Args:
        maps: the weights of each layer for one text, ``(H, L, S)`` or ``(1, H, L, S)``, as in
            the maps of `mhattn.attention_maps`.
        folder: where the files will be; the folder around it exists. They are written beside it
            first, and moved there when all of them are whole.
        tokens: a label for each query, ``L`` texts. Equal labels are equal tokens, for
            ``"induction"``. Default: the positions, and no induction.
        keys: a label for each key, ``S`` texts, if they are of another text than the queries.
            Positions are not compared then. Default: as tokens.
        names: of the layers. Default: ``layer 1``, ``layer 2``, ...
        title: of the page.
        force: replace a gallery that is there.

    Returns:
        The files.

    Raises:
        TypeError: maps is not a list of tensors of floats, or labels are not texts.
        ValueError: a map has another shape or other lengths than the first, numbers that are not
            finite or negative, or rows that do not sum to one; there is not a label for each
            position or a name for each layer; no query has a choice.
        FileExistsError: folder is not empty, and force is False; or it holds other files.
        FileNotFoundError: there is no folder around it.

    Examples:
        >>> import tempfile
        >>> tokens = "to be or not to be , or so".split()
        >>> maps = [torch.eye(9).expand(3, 9, 9), torch.full((2, 9, 9), 1 / 9)]
        >>> with tempfile.TemporaryDirectory() as home:
        ...     files = write_gallery(maps, Path(home) / "heads", tokens=tokens)
        ...     table = files[3].read_text(encoding="utf-8").splitlines()
        >>> print(*(file.name for file in files[:4]))
        index.html layer-1.svg layer-2.svg statistics.csv
        >>> print(*(line[:33] for line in table[:2]), sep="\\n")
        layer,name,head,roles,self,self_e
        1,layer 1,1,self,1.0000,0.2286,0.
    """
    weights = _checked(maps)
    L, S = weights[0].shape[-2:]
    if keys is None and L != S:
        raise ValueError(f"keys must be given for maps of L={L} queries and S={S} keys")
    queries = _labels("tokens", tokens, L)
    columns = queries if keys is None else _labels("keys", keys, S)
    called = [f"layer {i + 1}" for i in range(len(maps))] if names is None else list(names)
    if len(called) != len(maps):
        raise ValueError(f"names must be one for each of {len(maps)} layers, got {len(called)}")
    target = Path(folder).resolve()
    _can_be_written(target, force)

    ids = None if tokens is None or keys is not None else _numbers(tokens)
    layers = [
        _looked_at(name, one, ids, same_text=keys is None)
        for name, one in zip(called, weights, strict=True)
    ]
    similarity = _similarity(layers)
    heads = names_of_heads(layers)
    drawn = [draw_layer(layer.weights, queries, columns) for layer in layers]
    matrix = draw_similarity(similarity, heads)
    text = " ".join(queries) if keys is None else f"{' '.join(queries)} / {' '.join(columns)}"
    overview = draw_overview(layers)
    files = {"index.html": page(title, text, layers, drawn, similarity, matrix, overview)}
    files |= {f"layer-{i}.svg": figure for i, figure in enumerate(drawn, 1)}
    files["statistics.csv"] = _statistics_as_csv(layers)
    rows = ([name, *map(digits, row)] for name, row in zip(heads, similarity.tolist(), strict=True))
    files["similarity.csv"] = _csv([["head", *heads], *rows])
    files["similarity.svg"] = matrix
    _write(files, target, force)
    return [target / name for name in files]


def _checked(maps: Sequence[Tensor]) -> list[Tensor]:
    """The maps, each ``(H, L, S)``, in float32 on the CPU."""
    if not isinstance(maps, list | tuple):
        raise TypeError(
            f"maps must be a list with a tensor for each layer, got {type(maps).__name__}"
        )
    if not maps:
        raise ValueError("maps must be of at least one layer, got none")
    checked: list[Tensor] = []
    for i, weights in enumerate(maps):
        name = f"maps[{i}]"
        if not isinstance(weights, Tensor) or not weights.is_floating_point():
            got = weights.dtype if isinstance(weights, Tensor) else type(weights).__name__
            raise TypeError(f"{name} must be a tensor of floats, got {got}")
        shape = tuple(weights.shape)
        if len(shape) not in (3, 4) or (len(shape) == 4 and shape[0] != 1) or 0 in shape:
            rule = "(H, L, S) or (1, H, L, S), the maps of one text"
            raise ValueError(f"{name} must be {rule}, got shape {shape}")
        wide = weights.detach().float().cpu().reshape(shape[-3:])
        if checked and wide.shape[1:] != checked[0].shape[1:]:
            rule = f"have (L, S) = {tuple(checked[0].shape[1:])}, as maps[0]"
            raise ValueError(f"{name} must {rule}, got {shape[-2:]}")
        if not wide.isfinite().all():
            raise ValueError(f"{name} must be finite, got {wide[~wide.isfinite()][0]:g}")
        if (wide < 0).any():
            raise ValueError(f"{name} must not be negative, got {wide.min():g}: are these scores?")
        sums = wide.sum(dim=-1)
        if ((sums - 1).abs() >= 0.01).any():
            head, row = divmod(int((sums - 1).abs().argmax()), wide.shape[1])
            where = f"in head {head}, query {row}, counted from 0: dropout, padding or sinks?"
            raise ValueError(
                f"{name} must have rows that sum to 1, got {sums[head, row]:.4g} {where}"
            )
        checked.append(wide)
    return checked


def _labels(name: str, labels: Sequence[str] | None, number: int) -> list[str]:
    """As they are shown: white space and what has no glyph can be seen."""
    if labels is None:
        return [str(i + 1) for i in range(number)]
    if isinstance(labels, str) or not all(isinstance(label, str) for label in labels):
        raise TypeError(f"{name} must be a list of texts, got {labels!r:.60}")
    if len(labels) != number:
        raise ValueError(f"{name} must be {number} texts, as in the maps, got {len(labels)}")
    seen = {" ": "·", "\n": "↵", "\t": "⇥"}
    return [
        "".join(seen.get(c, c if c.isprintable() else f"\\x{ord(c):02x}") for c in label)
        for label in labels
    ]


def _numbers(tokens: Sequence[str]) -> Tensor:
    number = {token: i for i, token in enumerate(dict.fromkeys(tokens))}
    return torch.tensor([[number[token] for token in tokens]])  # (1, L)


# --8<-- [start:statistics]
def _looked_at(name: str, weights: Tensor, ids: Tensor | None, *, same_text: bool) -> Layer:
    L, S = weights.shape[-2:]
    mask = torch.ones(L, S, dtype=torch.bool)
    if same_text and not (weights * ~causal_mask(L, S)).any():
        mask = causal_mask(L, S)
    if not (mask.sum(dim=-1) > 1).any():
        raise ValueError(f"maps must have a query that sees two keys, got (L, S) = {(L, S)}")
    even = (mask / mask.sum(dim=-1, keepdim=True))[None]  # (1, L, S)
    patterns = head_patterns(L, S, tokens=ids)
    chosen = [pattern for pattern in PATTERNS if pattern in patterns] if same_text else ["first"]
    shapes = {pattern: patterns[pattern].reshape(L, S) for pattern in chosen}
    roles = find_roles(weights, shapes, mask, generator=torch.Generator().manual_seed(0))
    H, statistics = len(weights), {}
    for pattern, role in roles.items():
        statistics[pattern] = role.share
        statistics[f"{pattern}_even"] = attention_share(even, shapes[pattern], mask).expand(H)
        statistics[f"{pattern}_redrawn"] = role.threshold
    if same_text:
        statistics["distance"] = attention_distance(weights, mask)
        statistics["distance_even"] = attention_distance(even, mask).expand(H)
    statistics["entropy"] = attention_entropy(weights, mask, relative=True)
    statistics["entropy_even"] = torch.ones(H)
    statistics["largest"] = largest_weight(weights, mask)
    statistics["largest_even"] = largest_weight(even, mask).expand(H)
    beside_even = torch.stack([weights, even.expand_as(weights)], dim=1)  # (H, 2, L, S)
    statistics["similar_to_even"] = 1 - head_divergence(beside_even, mask)[:, 0, 1]
    found = [[pattern for pattern in chosen if roles[pattern].found[h]] for h in range(H)]
    return Layer(name, weights, mask, statistics, found)
    # --8<-- [end:statistics]


def _similarity(layers: Sequence[Layer]) -> Tensor:
    """1 less the divergence of all pairs of heads, ``(N, N)``; one head after the other."""
    weights = torch.cat([layer.weights for layer in layers])  # (N, L, S)
    mask = torch.stack([layer.mask for layer in layers]).any(dim=0)
    rows = []
    for head in weights:
        pairs = torch.stack([head.expand_as(weights), weights], dim=1)  # (N, 2, L, S)
        rows.append(1 - head_divergence(pairs, mask)[:, 0, 1])
    similarity = torch.stack(rows).clamp(0, 1)  # a rounding beside it
    return (similarity + similarity.T) / 2


def _statistics_as_csv(layers: Sequence[Layer]) -> str:
    columns = list(layers[0].statistics)
    rows: list[list[Any]] = [["layer", "name", "head", "roles", *columns]]
    for i, layer in enumerate(layers, 1):
        for h, roles in enumerate(layer.roles):
            numbers = [digits(layer.statistics[column][h].item()) for column in columns]
            rows.append([i, layer.name, h + 1, " ".join(roles), *numbers])
    return _csv(rows)


def _csv(rows: Iterable[Sequence[Any]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def _can_be_written(target: Path, force: bool) -> None:
    if not target.parent.is_dir():
        raise FileNotFoundError(f"folder must be in a folder that exists, got {target}")
    if target.exists() and not target.is_dir():
        raise FileExistsError(f"folder must not be a file, got {target}")
    there = sorted(file.name for file in target.iterdir()) if target.is_dir() else []
    if there and not force:
        raise FileExistsError(f"folder must be empty, or force a new gallery, got {target}")
    others = [name for name in there if not OURS.fullmatch(name)]
    if others:
        raise FileExistsError(f"folder must hold a gallery only, got {target} with {others[0]}")


def _write(files: dict[str, str], target: Path, force: bool) -> None:
    """All of them or none."""
    draft, old = (target.with_name(f".{target.name}.{os.getpid()}.{x}") for x in ("new", "old"))
    draft.mkdir()
    try:
        for name, text in files.items():
            (draft / name).write_text(text, encoding="utf-8", newline="\n")
        _can_be_written(target, force)  # still
        if target.exists():
            target.rename(old)
        try:
            draft.rename(target)
        except OSError:
            if old.exists():
                old.rename(target)
            raise
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    shutil.rmtree(old, ignore_errors=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line; its options are in the module's description."""
    parser = argparse.ArgumentParser(
        "mhattn.show.gallery", description="Save a gallery of all heads."
    )
    add = parser.add_argument
    add(
        "maps", nargs="?", help=".pt or .npz with an array (H, L, S) or (1, H, L, S) for each layer"
    )
    add("--tokens", help="JSON file with a list of texts, one for each query")
    add("--keys", help="the same for the keys, if they are of another text")
    add("--model", help="folder with a model of transformers and its tokenizer, instead of maps")
    add("--text", help="what the model reads")
    add("--out", required=True, help="folder for the files, new or empty")
    add("--title", help="of the page")
    add("--force", action="store_true", help="replace a gallery that is there")
    given = parser.parse_args(arguments)
    if (given.maps is None) == (given.model is None):
        parser.error("give either a file of maps or --model")
    if (given.model is None) != (given.text is None):
        parser.error("--model and --text belong together")
    if given.model is not None and (given.tokens or given.keys):
        parser.error("with --model, the tokens are those of its tokenizer")
    try:
        _can_be_written(Path(given.out).resolve(), given.force)  # before the model runs
        keys = _read_labels(given.keys)
        if given.model is None:
            maps, names = _read_maps(Path(given.maps))
            tokens = _read_labels(given.tokens)
        else:
            maps, names, tokens = _run_model(Path(given.model), given.text)
        of_model = "" if given.model is None else f" of {Path(given.model).resolve().name}"
        title = f"All heads{of_model}" if given.title is None else given.title
        options: dict[str, Any] = {"names": names, "title": title, "force": given.force}
        files = write_gallery(maps, given.out, tokens=tokens, keys=keys, **options)
    except (ImportError, OSError, TypeError, ValueError) as error:
        parser.error(str(error))
    print(f"{len(files)} files, {files[0]}")


def _read_maps(path: Path) -> tuple[list[Any], list[str] | None]:
    """The arrays of a file, and their names if it has them."""
    if not path.is_file():
        raise FileNotFoundError(f"maps must be a file, got {path}")
    try:
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as file:
                found: Any = {name: torch.from_numpy(file[name]) for name in file.files}
        else:
            found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # of pickle, zipfile and others
        rule = "maps must be a list of tensors from torch.save, or arrays from numpy.savez"
        raise ValueError(f"{rule}, got {path}") from error
    if isinstance(found, dict):
        return list(found.values()), [str(name) for name in found]
    return found, None


def _read_labels(path: str | None) -> list[str] | None:
    if path is None:
        return None
    try:
        labels: list[str] = json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"labels must be a list of texts in JSON, got {path}: {error}") from error
    if not isinstance(labels, list):
        raise ValueError(f"labels must be a list of texts in JSON, got {path}: {labels!r:.40}")
    return labels


def _run_model(folder: Path, text: str) -> tuple[list[Tensor], list[str], list[str]]:
    """A model from a folder of this computer; no other place is asked."""
    from mhattn.inside.observe import attention_maps

    if not folder.is_dir():
        raise FileNotFoundError(f"model must be a folder, got {folder}")
    try:
        import transformers
    except ImportError as error:
        raise ImportError("--model needs transformers: pip install transformers") from error
    local: dict[str, Any] = {"local_files_only": True}
    tokenizer: Any = transformers.AutoTokenizer.from_pretrained(folder, **local)
    local["attn_implementation"] = "eager"
    log: Any = transformers.logging
    said = log.get_verbosity()
    log.set_verbosity_error()  # a language model's output layer isn't loaded
    try:
        model: Any = transformers.AutoModel.from_pretrained(folder, **local).eval()
    finally:
        log.set_verbosity(said)
    if model.config.is_encoder_decoder:
        raise ValueError("model must be an encoder or a decoder, got both: save its maps instead")
    tokens = tokenizer(text, return_tensors="pt")
    with torch.no_grad():
        found = attention_maps(model, **tokens)
    labels = []
    for token in tokens["input_ids"][0].tolist():
        label = tokenizer.decode([token])  # a part of a letter has none
        broken = not label or "\N{REPLACEMENT CHARACTER}" in label
        labels.append(tokenizer.convert_ids_to_tokens(token) if broken else label)
    return found.maps, found.names, labels


if __name__ == "__main__":
    main()
