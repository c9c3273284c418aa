"""A layer inside its model, in the form that the doctor calls."""

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from mhattn.testing.adapted import number, width_of_queries
from mhattn.testing.hub import CACHES, MASKS
from mhattn.testing.layouts import (
    PLACED,
    Layout,
    as_tokens,
    first_of,
    is_cache,
    layout_of,
    roles,
    unturned,
)
from mhattn.testing.own_masks import TOKENS, OwnMasks
from mhattn.testing.pairs import is_alone, is_local, is_whole, seen_pairs
from mhattn.testing.rotations import Turns
from mhattn.testing.subject import Skip, copied, has_own_backward, tensors_of
from mhattn.testing.watched import Call, Watched, axes_of

__all__: list[str] = []

FEWEST = 3
LONGEST = 128  # a layer of one length alone is called once for each of its tokens
KNOWN = ("cache_position", "position_ids", *MASKS, *CACHES)
SIGNS = (
    "rotary",
    "rope",
    "relative",
    "pos_emb",
    "position",
    "alibi",
    "freq",
    "bias_table",
    "sinus",
)


class Caught(OwnMasks):
    """A layer that is called with what its model gives it, and tokens of the doctor's own."""

    knows_formula = False

    def __init__(self, watched: Watched, call: Call) -> None:
        super().__init__(call.layer)
        self.watched, self.call = watched, call
        self.is_turned_back = False
        self.tokens, self.memories = roles(call)
        x = call.given[self.tokens[0]]
        as_large = {n for n, v in call.given.items() if getattr(v, "shape", None) == x.shape}
        self.besides = as_large - {*self.tokens, *self.memories}
        self.layout, self.axes = self._layout(x)
        self.batch, self.length, self.width = self.layout.output(x).shape
        self.keys = 0
        if self.memories:
            self.keys = self.layout.flat(call.given[self.memories[0]]).shape[1]
        names = ("attn_mask",) if isinstance(call.layer, nn.MultiheadAttention) else MASKS
        self.mask_name = next((name for name in names if name in call.given), "")
        self._find_axes()
        self._tell()
        self._depends()
        self.layer = self._uncalled()

    def _depends(self) -> None:
        """Refuse a call whose tokens aren't where they were looked for: its output is all zeros."""
        if self.memories:
            return
        try:
            with torch.no_grad():
                found = self(self._drawn(self.length).expand(self.batch, -1, -1))
        except Exception:  # the checks say why
            return
        if not found.any():
            raise Skip("its output doesn't depend on its tokens: where they are isn't known")

    def _uncalled(self) -> nn.Module:
        """A copy of the layer from before its first call, if it works without its model's."""
        uncalled = self.watched.uncalled.get_submodule(self.call.name)
        called, self.layer = self.layer, copied(uncalled)
        try:
            with torch.no_grad():
                self._given(self.call.given)
        except Exception:  # some models choose while they run which way their layers go
            return copied(called)
        return copied(uncalled)

    def _given(self, given: dict[str, Any]) -> Tensor:
        """What the layer gives, without what it keeps for the next call."""
        return first_of(self.layer(**{n: None if is_cache(v) else v for n, v in given.items()}))

    def _layout(self, x: Tensor) -> tuple[Layout, tuple[int, int]]:
        """How tokens lie in the layer's tensor; which axes of inputs are sequences, tokens."""
        inputs = list(tensors_of([self.watched.inputs, self.watched.options]))
        is_turned, axes = False, (0, 1)
        if not getattr(self.layer, "batch_first", True):
            # Nothing else tells of `(L, B, E)` given to a model. Of token numbers or pictures, the
            # first axis is that of the sequences, whatever a layer inside takes it for.
            is_turned = all(each.ndim == 3 for each in inputs)
            axes = (1, 0) if is_turned else axes
            firsts = axes_of(inputs, 0)
            is_turned |= x.ndim == 3 and x.shape[1] in firsts and x.shape[0] not in firsts
        batches, lengths = (axes_of(inputs, axis) for axis in axes)
        return layout_of(self.layer, x, batches, lengths, is_turned), axes

    def _find_axes(self) -> None:
        """Which sizes of the model's inputs are this layer's sequences, tokens and keys."""
        inputs = self.watched.inputs, self.watched.options
        lengths, used = axes_of(inputs, self.axes[1]), (*self.tokens, *self.memories)
        rest = list(tensors_of([v for n, v in self.call.given.items() if n not in used]))
        is_plain = len(self.layout.shape) == 3 and not self.layout.is_alone
        self.is_fixed = self.length not in lengths or not is_plain or not self._follows()
        self.has_fixed_keys = self.keys not in lengths and any(self.keys in x.shape for x in rest)
        # A picture has its number of patches; most layers take any number of them all the same.
        self.is_free = self.is_fixed and is_plain and self._takes_any_length(rest)
        if self.is_fixed and not self.is_free and not FEWEST <= self.length <= LONGEST:
            raise Skip(f"its model calls it with {self.length} tokens, whatever the input")

    def _follows(self) -> bool:
        """Whether another number of tokens in the model's inputs is one in the layer."""
        sequences, tokens = self.axes
        changes = [(sequences, self.batch, self.batch), (tokens, self.length, 5)]
        try:
            given = self.watched.at(self.call.name, changes)[self.tokens[0]]
        except Skip:
            return True  # the checks say why
        return self.layout.output(given).shape[1] == 5

    @property
    def fixed(self) -> tuple[int, int]:
        """The number of tokens and that of keys, if its model never gives it another one; or 0."""
        tokens = self.length if self.is_fixed and not self.is_free else 0
        keys = self.keys if self.has_fixed_keys else 0
        return tokens, (keys if self.memories else tokens)

    def _takes_any_length(self, rest: list[Tensor]) -> bool:
        # Tables of distances have a row for each of them, on both sides.
        sizes = {self.length, 2 * self.length - 1, 2 * self.length + 1}
        if any(sizes & set(x.shape) for x in rest):
            return False
        x, axis = self.call.given[self.tokens[0]], 0 if self.layout.is_turned else 1
        twice = torch.cat([x, x], dim=axis)
        try:
            with torch.no_grad():
                for length in (self.length // 2 or 1, 2 * self.length):
                    part = twice.narrow(axis, 0, length)
                    self.layer(**self.call.given | dict.fromkeys(self.tokens, part))
        except Exception:  # whatever a layer raises for a length that it doesn't know
            return False
        return True

    def _tell(self) -> None:
        """What `check_attention` is told, and the same in words."""
        layer, (heads, groups, dim) = self.layer, self.call.sizes
        heads = heads or number(layer, "num_heads", "n_heads", "num_attention_heads", "n_head") or 0
        self.has_heads = bool(heads)
        heads = heads or 1
        told = number(layer, "num_key_value_heads", "num_kv_heads")
        dim = dim or number(layer, "head_dim", "attention_head_size", "key_value_proj_dim", "d_kv")
        dim = dim or width_of_queries(layer) // heads or max(1, self.width // heads)
        self.how = {
            "embed_dim": self.width,
            "num_heads": heads,
            "num_kv_heads": told if told and heads % told == 0 else groups or heads,
            "head_dim": dim,
            "inputs": "qk" if self.memories else "x",
            "mask": "mask" if self._takes_masks() else False,
            **dict.fromkeys(("padding", "weights", "cache", "documents", "position_ids"), False),
            "empty_rows": "any",
            "device": self.call.given[self.tokens[0]].device,
            "scale": number(layer, "scaling", "scale", kind=int | float),
            "cap": number(layer, "attn_logit_softcapping", kind=float),
            # Rows of tokens sum to less than one beside sinks, or keys that are no tokens.
            "sinks": isinstance(getattr(layer, "sinks", None), nn.Parameter)
            or self.call.keys > max(self.length, self.keys),
            **self._positions(dim),
        }
        # Deformable and other attention weighs something else than tokens.
        self.is_odd = 0 < self.call.keys < (self.keys or self.length)
        self._measure()

    def _measure(self) -> None:
        """What the layer does in the call that its model makes: its shape, and what it sees."""
        like = self.call.given[self.tokens[0]]
        x = torch.randn(self.batch, self.length, self.width).to(like)
        memory = (torch.randn(self.batch, self.keys, self.width).to(like),) if self.keys else ()
        other = x.clone()
        other[:, 0 if memory else -1] += 1
        begun = time.process_time()
        with torch.no_grad():
            one, two = (self(each, *memory) for each in (x, other))
        self.seconds = (time.process_time() - begun) / 2
        self.is_pooled = one.shape[1] != x.shape[1]
        if one.shape[0] != x.shape[0]:
            raise Skip(f"its output is {tuple(one.shape)}, from tokens {tuple(x.shape)}")
        self.assumed.insert(0, f"{type(self.layer).__name__}, as its model calls it")
        if self.is_pooled:
            return
        if memory and not torch.equal(one[:, 1:], two[:, 1:]):
            raise Skip("its queries are keys as well, beside its memory")
        is_causal = self.length > 1 and torch.equal(one[:, :-1], two[:, :-1])
        # Its keys are no tokens of its own, or it was given none: who sees whom isn't known.
        if is_causal and not memory and self.call.keys != self.length and is_alone(self, x, one):
            raise Skip("no output depends on another token, and its keys are none of them")
        self.how["causal"] = is_causal and not memory
        self.how["seen"] = None if memory else self._seen()
        told = getattr(self.layer, "is_causal", None)
        if told is not None and bool(told) != self.how["causal"]:
            self.assumed.append(f"is_causal={told} is what it says, and not what it does")

    def _positions(self, dim: int) -> dict[str, Any]:
        """Positions as `Calls` names them, from what the layer is given and is made of."""
        placed = [v for n, v in self.call.given.items() if n.startswith(PLACED) and v is not None]
        pair = placed[0] if placed else None
        if isinstance(pair, tuple | list) and [type(x) for x in pair] == [Tensor, Tensor]:
            if self._turns_nothing(pair):
                self.assumed = ["it is given positions, and doesn't use them"]
                return {}
            first = [x.reshape(-1, *x.shape[-2:])[:1, 1:2] for x in pair]
            cos, sin = (x.detach().double().flatten() for x in first)
            return Turns.read(cos, sin, dim, may_be_part=True).how() | {"position_ids": False}
        names = [n for n, v in self.call.given.items() if v is not None and n not in KNOWN]
        if any("bias" in name or "rel_pos" in name for name in names):
            return {"positions": "relative"}
        parts = (self.layer.named_modules, self.layer.named_parameters, self.layer.named_buffers)
        names += [name for part in parts for name, _ in part()]
        has_own = any(sign in name.lower() for name in names for sign in SIGNS)
        has_own |= self.call.given.get("position_ids") is not None
        return {"positions": "relative"} if has_own else {}

    def _turns_nothing(self, pair: Any) -> bool:
        """Whether cosines of one and sines of zero give what the model's own give."""
        none = unturned(pair)
        other = {n: none if value is pair else value for n, value in self.call.given.items()}
        with torch.no_grad():
            return torch.equal(self._given(self.call.given), self._given(other))

    def _seen(self) -> Callable[[int, int], bool] | None:
        """What a token sees, if that is neither all nor a triangle."""
        length = self.fixed[0] or TOKENS
        seen = None if self.fixed[0] else self._shown_by_mask()
        if seen is None:
            if not self.call.keys:  # it weighs nothing: a recurrence sees all earlier tokens
                return None
            try:
                one, other = (seen_pairs(self, self._drawn(length)) for _ in range(2))
            except (Skip, RuntimeError, ValueError, IndexError):  # the checks say what it takes
                return None
            # What depends on the tokens, as the largest scores do, is no pattern.
            if not torch.equal(one, other) or not (self.fixed[0] or is_local(one)):
                return None
            seen = one
        if is_whole(seen):
            return None
        self.is_odd |= not is_local(seen) and self.fixed[0] > 0
        return lambda i, j: bool(seen[i, j])

    def _drawn(self, length: int) -> Tensor:
        like = self.call.given[self.tokens[0]]
        return torch.randn(length, self.width).to(like)

    @property
    def chooses(self) -> bool:
        """Whether it depends on the tokens themselves which of them a token sees."""
        length = self.fixed[0] or self.length
        draws = [seen_pairs(self, self._drawn(length)) for _ in range(4)]
        return not all(torch.equal(draws[0], each) for each in draws)

    @property
    def follows_the_batch(self) -> bool:
        """Whether what its model gives it besides is the same for each sequence."""
        alone, beside = (self._at(n, self.length, self.keys) for n in (1, self.batch))
        for name, one in alone.items():
            if name not in (*self.tokens, *self.memories) and isinstance(one, Tensor):
                same = beside[name]
                if same.shape[1:] == one.shape[1:] and same.ndim:
                    one = one.repeat(len(same) // len(one), *[1] * (one.ndim - 1))
                if one.shape != same.shape or not torch.equal(one, same):
                    return False
        return True

    @property
    def turns_values(self) -> bool:
        """Whether equal values give equal outputs as soon as no position turns them."""
        if not any(n.startswith(PLACED) and v is not None for n, v in self.call.given.items()):
            return False
        x = self._drawn(1).expand(self.batch, self.length, -1)
        self.is_turned_back = True
        try:
            with torch.no_grad():
                found = self(x)
        finally:
            self.is_turned_back = False
        return torch.allclose(found, found[:, :1], rtol=1e-4, atol=1e-5)

    @property
    def has_own_backward(self) -> bool:
        """Whether a function with a backward of its own is in the layer's graph."""
        x = self._drawn(self.length).expand(self.batch, -1, -1).clone().requires_grad_()
        return has_own_backward(self(x))

    def forward(
        self, x: Tensor, memory: Tensor | None = None, mask: Tensor | None = None
    ) -> Tensor:
        """``(B, L, E)``; masks of booleans, True may attend."""
        if mask is not None and mask.dtype != torch.bool:
            raise TypeError(f"mask must be booleans, got {mask.dtype}")
        if self.layout.is_alone and x.shape[0] > 1:
            parts = [x] if memory is None else [x, memory]
            return torch.cat([self(*(each[i : i + 1] for each in parts)) for i in range(len(x))])
        given = dict(self._at(x.shape[0], x.shape[1], 0 if memory is None else memory.shape[1]))
        # What else is as large as the tokens, such as a residual, would tell of the model's own.
        tokens = self.layout.raw(x)  # contiguous, as in any model
        given |= dict.fromkeys(self.besides, torch.zeros_like(tokens))
        given |= dict.fromkeys(self.tokens, tokens)
        if memory is not None:
            given |= dict.fromkeys(self.memories, self.layout.raw(memory))
        if self.is_turned_back:
            given |= {n: unturned(v) for n, v in given.items() if n.startswith(PLACED)}
        if mask is not None:
            given[self.mask_name] = self._mask(given[self.mask_name], mask, x)
        try:
            found = self._given({name: as_tokens(value, x) for name, value in given.items()})
        except Exception as error:
            changes = self._changes(
                x.shape[0], x.shape[1], 0 if memory is None else memory.shape[1]
            )
            if x.shape[:2] != (self.batch, self.length) and self.watched.runs(changes):
                # In the model itself it works: what is given besides has not been read rightly.
                raise Skip(f"what its model gives it besides isn't known: {error}"[:110]) from error
            raise
        return self.layout.output(found)

    def _at(self, batch: int, length: int, keys: int) -> dict[str, Any]:
        """What the model gives for these numbers of sequences, tokens and tokens of a memory."""
        if self.is_fixed and length != self.length and not self.is_free:
            raise Skip(f"its model calls it with {self.length} tokens, whatever the input")
        if self.has_fixed_keys and keys != self.keys:
            raise Skip(f"its model calls it with {self.keys} keys, whatever the input")
        if self.layout.is_alone:
            return self.call.given
        found = self.watched.at(self.call.name, self._changes(batch, length, keys))
        given = self.layout.output(found[self.tokens[0]])
        shape = tuple(given.shape[:2])
        if shape != (batch, self.length if self.is_fixed else length):
            raise Skip(f"its model gives it {shape} tokens for {batch, length}")
        return found

    def _changes(self, batch: int, length: int, keys: int) -> list[tuple[int, int, int]]:
        """What changes in the model's inputs."""
        sequences, tokens = self.axes
        changes = [(sequences, self.batch, batch)]
        changes += [] if self.is_fixed else [(tokens, self.length, length)]
        changes += [(tokens, self.keys, keys)] if keys and self.keys != self.length else []
        return changes
