"""Tasks and small models of the site's chapters: for its stories and notebooks, not a library.

- `tasks`: tokens that are linked, and a model of one layer that gathers them.
- `lookup`: tasks that a head of a known kind solves, and a model that has to find it.
- `echo`: a small model whose heads several chapters follow.
- `recall`: names that get values and are asked for them.
- `reactions`: chemical reactions whose atoms are known.
- `files`: texts, measurements, runs and trained models that chapters read.

Word lists, sizes and seeds are those of the chapters, and change with them.
"""

from typing import TYPE_CHECKING

from mhattn.door import lazy

NAMES = {
    "tasks": "GatherModel LinkedTokens balanced linked_tokens train_models",
    "lookup": (
        "AttentionOnly Lookup SENTENCE_WORDS agreeing_verbs lookup_losses matched_brackets "
        "previous_tokens repeated_tokens train_together"
    ),
    "echo": "Echo echo_losses echo_texts train_echo",
    "recall": "RecallModel named_values shares_right train_recall",
    "reactions": "REACTION_KINDS Reaction atom_classes draw_reaction parse_smiles",
    "files": "data_file",
}

if TYPE_CHECKING:  # type checkers read the imports; nothing else does
    from mhattn.lessons.echo import *
    from mhattn.lessons.files import *
    from mhattn.lessons.lookup import *
    from mhattn.lessons.reactions import *
    from mhattn.lessons.recall import *
    from mhattn.lessons.tasks import *
else:
    __all__, __getattr__, __dir__ = lazy(__name__, NAMES)
