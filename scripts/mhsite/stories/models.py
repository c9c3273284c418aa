"""The trained models that stories read, and the models that pages list."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

from mhattn.costs import known_model, known_models
from mhattn.lessons import files
from mhattn.lessons.files import Model, known_models as known
from mhsite.stories.source import SourceError, of_file

READERS = ("gguf", "tokenizers")  # the packages that read them
NAMED = re.compile(r'\bdata_file\(\s*"models/([\w.-]+)"')
LANGUAGE = ("vocab_size: int = ", "num_attention_heads: int = ", "num_key_value_heads: int")
VERSION = re.compile(r"[-.]?\d[\d.]*(?![\d.bm])")  # behind a name; 7b or 270m are sizes
SIZE = re.compile(r"-e?\d[\d.]*[bm]\b.*")  # of a row's name, and what follows it

file_hash = of_file(files.file_hash)


def needed_by(story: Path) -> list[Model]:
    """The models that a story reads."""
    return named_in(story.read_text(encoding="utf-8"))


def named_in(text: str) -> list[Model]:
    names = NAMED.findall(text)
    return [model for model in known() if model.path.name in names] if names else []


def fetch(model: Model) -> Path:
    """Its file, downloaded if it is not there; a `SourceError` says why it can't be had."""
    if model.path.is_file() and file_hash(model.path) == model.member_sha256:
        return model.path
    try:
        return files.fetch(model)
    except OSError as error:
        raise SourceError(str(error)) from None


def without_row() -> list[str]:
    """The installed transformers' language models without a row: ``deepseek_v4: <checkpoint>``.

    A language model is what transformers loads as one that continues a text, with keys and values
    that it may keep. A row is a model's if it cites the file of its configuration, if the
    checkpoint that this file names begins with the row's name, and no other version's number
    follows, or if the folder has that name, but for the size.
    """
    rows = [known_model(name) for name in known_models()]
    cited = {source for row in rows for source in (row.source, *row.more_sources)}
    families = {SIZE.sub("", row.name).replace("-", "") for row in rows}
    folder, writing = _transformers(), _causal()
    found = []
    for path in sorted(folder.glob("models/*/configuration_*.py")):
        text = path.read_text(encoding="utf-8")
        checkpoint = re.search(r'checkpoint="(?:[^"/]+/)?([^"]+)"', text)
        if checkpoint is None or not all(f"    {size}" in text for size in LANGUAGE):
            continue
        if path.parent.name not in writing:
            continue
        name = checkpoint[1].lower()
        if not (
            path.parent.name.replace("_", "") in families
            or any(source.endswith(f"/{path.parent.name}/{path.name}") for source in cited)
            or any(_begins(name, row.name) for row in rows)
        ):
            found.append(f"{path.parent.name}: {checkpoint[1]}")
    return found


def _begins(checkpoint: str, name: str) -> bool:
    """Whether a checkpoint is of the model with this name: Inkling-2-Small isn't of Inkling."""
    rest = checkpoint.removeprefix(name)
    return rest != checkpoint and not VERSION.match(rest)


def _causal() -> set[str]:
    """The folders of models that transformers' `AutoModelForCausalLM` knows."""
    from transformers.models.auto.configuration_auto import model_type_to_module_name
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    return set(map(model_type_to_module_name, MODEL_FOR_CAUSAL_LM_MAPPING_NAMES))


def _transformers() -> Path:
    spec = find_spec("transformers")
    if spec is None or spec.origin is None:
        raise SourceError("transformers is not installed")
    return Path(spec.origin).parent
