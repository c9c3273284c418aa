"""What is kept of earlier tokens for those that come: keys and values, or sums over them."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn

from mhattn.core import checks as check

__all__ = ["KVCache", "LinearState"]


# --8<-- [start:KVCache]
class KVCache:
    """Keys and values of all tokens so far, or of some of them, in memory set aside once.

    Appending writes in place and copies nothing that is there already. A window has room for
    twice its size: when that is full, what is still needed moves to the front. ``seen`` counts
    all tokens, ``len(cache)`` those that it holds. Without gradients: a cache is for generating,
    not for training. It is one layer's until it is empty again.

    Beside the window, the first tokens may be kept for ever, as attention sinks (Xiao et al.
    2024, https://arxiv.org/abs/2309.17453). They are handed out right before the window, as if
    nothing had stood between. For this they are copied there in each call.

    ``positions`` are those of the keys handed out last, ``(B, S)``, if they were given.

    Args:
        max_len: how many tokens it has room for. With a window any number may come, and max_len
            must not be given.
        window: how many of the last tokens are kept. Default: all.
        sinks: how many of the first tokens are kept as well; this needs a window.

    Raises:
        TypeError: max_len, window or sinks is not an integer.
        ValueError: max_len or window is less than 1, sinks is negative, neither or both of
            max_len and window are given, or there are sinks without a window.

    Examples:
        >>> cache = KVCache(max_len=8)
        >>> key, value = torch.zeros(2, 1, 3, 5, 7)  # (B, H_kv, L, D) each
        >>> keys, values = cache.append(key, value)
        >>> keys, values = cache.append(key[:, :, :1], value[:, :, :1])
        >>> keys.shape, len(cache)
        (torch.Size([1, 3, 6, 7]), 6)
    """

    def __init__(
        self, max_len: int | None = None, *, window: int | None = None, sinks: int = 0
    ) -> None:
        if max_len is None and window is None:
            raise ValueError("max_len or window must be given, got neither")
        if max_len is not None and window is not None:
            raise ValueError(f"max_len must be None with a window, got {max_len}")
        if max_len is not None:
            check.at_least("max_len", max_len, 1)
        if window is not None:
            check.at_least("window", window, 1)
        check.at_least("sinks", sinks, 0)
        if sinks > 0 and window is None:
            raise ValueError(f"sinks must be 0 without a window, got {sinks}")
        self.max_len = max_len
        self.window = window
        self.sinks = sinks
        self.positions: Tensor | None = None
        self._memory: tuple[Tensor, ...] = ()
        self._layer: int | None = None
        self.reset()

    def __len__(self) -> int:
        return self._end - self._start

    @property
    def dropped(self) -> int:
        """How many tokens are gone: those between the sinks and the window."""
        return self.seen - len(self)

    @property
    def nbytes(self) -> int:
        """Bytes set aside, in use or not; 0 before the first token."""
        return sum(memory.nbytes for memory in self._memory)

    def append(
        self,
        key: Tensor,
        value: Tensor,
        *,
        move: Callable[[Tensor, int], Tensor] | None = None,
        positions: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Take in new tokens.

        Args:
            key: ``(B, H_kv, L, D)``; all axes but L as those of the tokens that are there.
            value: ``(B, H_kv, L, D_v)``.
            move: if positions are part of the keys, ``move(keys, by)`` gives the sinks' keys so
                many positions later, as `Position.move` does. With it, the sinks stand right
                before the window; without, where they stood in the text.
            positions: integers ``(L,)`` or ``(B, L)``, to be kept beside the keys: in each call or
                in none, and not with sinks.

        Returns:
            The keys and values of all tokens that a new one may see, the new ones last:
            mostly views of the cache's memory, good until the next call.

        Raises:
            TypeError: key or value is not a tensor of floats, or positions not one of integers.
            ValueError: there is no room left, the shapes do not fit, or positions are given in
                some calls only or beside sinks.

        Examples:
            >>> cache = KVCache(window=2, sinks=1)
            >>> for token in torch.arange(6.0):
            ...     keys, values = cache.append(*token.expand(2, 1, 1, 1, 1))
            >>> keys.flatten()
            tensor([0., 4., 5.])
        """
        check_pair(key, value)
        new: tuple[Tensor, ...] = key.detach(), value.detach()
        if positions is not None:
            check.positions(positions, key)
            new += (positions.expand(key.shape[0], -1)[:, None, :, None],)  # (B, 1, L, 1)
        if self._end > 0:
            check_as_before(key, value, self._memory)
        self._check_positions(positions)
        if self._end == 0 and not all_fit(new, self._memory):
            self._memory = tuple(self._set_aside(x) for x in new)
        self._place_sinks(move)
        number, room = key.shape[2], self._memory[0].shape[2] - self.sinks
        if self._end + number <= room:
            self._write(new)
            visible = self._held()
        elif self.window is None:
            rule = f"at least {self._end + number} for these tokens"
            raise ValueError(f"max_len must be {rule}, got {room}")
        else:
            visible = self._start_again(new)
        self.seen += number
        if self.window is not None:
            self._drop(visible)
        self.positions = visible[2][:, 0, :, 0] if len(visible) == 3 else None
        return visible[0], visible[1]

    def reset(self) -> None:
        """Forget all tokens, and whose they were; the memory stays for others of their shape."""
        self.seen = self._start = self._end = 0
        self.positions = None

    def crop(self, length: int) -> None:
        """Forget all tokens but the first ones, as if the others had never come.

        For speculative decoding, which takes tokens in and gives some back, and to go on from an
        earlier place.

        Args:
            length: how many tokens stay.

        Raises:
            TypeError: length is not an integer.
            ValueError: length is negative or more than have been seen, or a window has dropped
                tokens that would be needed again.

        Examples:
            >>> cache = KVCache(max_len=8)
            >>> _ = cache.append(*torch.zeros(2, 1, 3, 5, 7))
            >>> cache.crop(2)
            >>> len(cache)
            2
        """
        check.at_least("length", length, 0)
        if length > self.seen:
            raise ValueError(f"length must be at most the {self.seen} tokens seen, got {length}")
        if self.dropped and length < self.seen:
            rule = f"{self.seen}, since a window has dropped {self.dropped} tokens"
            raise ValueError(f"length must be {rule}, got {length}")
        self._end -= self.seen - length
        self.seen = length

    def reorder(self, rows: Tensor) -> None:
        """Let each sequence go on from another one, as beam search needs.

        Args:
            rows: integers ``(B_new,)``: which sequence each new one continues.

        Raises:
            TypeError: rows is not a tensor of integers.
            ValueError: rows does not have one axis.

        Examples:
            >>> cache = KVCache(max_len=8)
            >>> key = torch.arange(2.0)[:, None, None, None]  # (B, H_kv, L, D)
            >>> _ = cache.append(key, key)
            >>> cache.reorder(torch.tensor([1, 1, 0]))
            >>> keys, _ = cache.append(*torch.zeros(2, 3, 1, 1, 1))
            >>> keys[..., 0, 0].flatten()
            tensor([1., 1., 0.])
        """
        self._memory = take_rows(rows, *self._memory)

    def _check_positions(self, positions: Tensor | None) -> None:
        if positions is not None and self.sinks > 0:
            raise ValueError(f"positions must be None with sinks, got sinks={self.sinks}")
        if self._end > 0 and (positions is None) != (len(self._memory) == 2):
            rule = "None" if positions is not None else "given"
            got = "none" if positions is None else f"shape {tuple(positions.shape)}"
            raise ValueError(f"positions must be {rule} as before, got {got}")

    def _set_aside(self, x: Tensor) -> Tensor:
        room = 2 * (self.window + self.sinks) if self.window is not None else self.max_len or 0
        with outside_of_inference_mode():
            return x.new_empty(*x.shape[:2], room, x.shape[3])

    def _write(self, new: tuple[Tensor, ...]) -> None:
        """Behind what is there."""
        end = self._end + new[0].shape[2]
        for memory, x in zip(self._memory, new, strict=True):
            memory[:, :, self._end : end] = x
        self._end = end

    def _held(self) -> tuple[Tensor, ...]:
        held = slice(self._start, self._end)
        return tuple(memory[:, :, held] for memory in self._memory)

    def _start_again(self, new: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Move what is still needed to the front, for the memory is full."""
        keep = self.sinks + (self.window or 0)
        visible = new
        if len(self) > 0:
            pairs = zip(self._held(), new, strict=True)
            visible = tuple(torch.cat(pair, dim=2) for pair in pairs)
        self._start = self._end = 0
        self._write(tuple(x[:, :, -keep:] for x in visible))
        return visible

    def _drop(self, visible: tuple[Tensor, ...]) -> None:
        """Keep the sinks and the window, of which the next token itself will be the last."""
        keep = self.sinks + (self.window or 0) - 1
        was_whole = self.seen == visible[0].shape[2]  # no token was missing from this call
        first_to_drop = was_whole and keep < self.seen
        if self.sinks > 0 and first_to_drop:
            for memory, x in zip(self._memory, visible, strict=True):
                memory[:, :, -self.sinks :] = x[:, :, : self.sinks]
        self._start = max(self._start, self._end - keep)

    def _place_sinks(self, move: Callable[[Tensor, int], Tensor] | None) -> None:
        """From the end of the memory to right before the window, over what is dropped."""
        if self.sinks == 0 or self.dropped == 0:
            return
        key, value = (memory[:, :, -self.sinks :] for memory in self._memory[:2])
        if move is not None:
            key = move(key, self.dropped)
        place = slice(self._start, self._start + self.sinks)
        for memory, x in zip(self._memory[:2], (key, value), strict=True):
            memory[:, :, place] = x

    # --8<-- [end:KVCache]


# --8<-- [start:LinearState]
class LinearState:
    """The state of a recurrence over all tokens so far: a cache that does not grow.

    ``state`` is what `linear_attention`, ``(B, H, D_phi, D_v + 1)``, or `GatedDelta`,
    ``(B, H, D, D_v)``, returned last, and ``seen`` counts the tokens in it. It can't give a token
    back, so there is no ``crop``. Without gradients, as `KVCache`.

    Examples:
        >>> from mhattn import MultiHeadAttention
        >>> from mhattn.variants import linear_attention
        >>> layer, x = MultiHeadAttention(12, 3, attend=linear_attention), torch.randn(2, 5, 12)
        >>> cache = LinearState()
        >>> first = layer(x[:, :4], is_causal=True, cache=cache)
        >>> last = layer(x[:, 4:], is_causal=True, cache=cache)
        >>> torch.allclose(last, layer(x, is_causal=True)[:, 4:], atol=1e-6)
        True
        >>> cache.seen, cache.state.shape
        (5, torch.Size([2, 3, 4, 5]))
    """

    state: Tensor | None
    _layer: int | None

    def __init__(self) -> None:
        self.reset()

    def __len__(self) -> int:
        return self.seen

    @property
    def nbytes(self) -> int:
        """Bytes of the state; 0 before the first token."""
        return 0 if self.state is None else self.state.nbytes

    def update(self, state: Tensor, number: int) -> None:
        """Take in the state after some more tokens.

        Args:
            state: as `linear_attention` returned it, given the earlier one.
            number: how many tokens were added.

        Examples:
            >>> cache = LinearState()
            >>> cache.update(torch.zeros(2, 3, 4, 5), number=7)
            >>> len(cache)
            7
        """
        self.state = state.detach()
        self.seen += number

    def reset(self) -> None:
        """Forget all tokens."""
        self.state = None
        self.seen = 0
        self._layer = None

    def reorder(self, rows: Tensor) -> None:
        """Let each sequence go on from another one, as `KVCache.reorder`.

        Args:
            rows: integers ``(B_new,)``: which sequence each new one continues.

        Raises:
            TypeError: rows is not a tensor of integers.
            ValueError: rows does not have one axis.

        Examples:
            >>> cache = LinearState()
            >>> cache.update(torch.arange(2.0)[:, None, None, None], number=1)
            >>> cache.reorder(torch.tensor([1, 1, 0]))
            >>> cache.state.flatten()
            tensor([1., 1., 0.])
        """
        (self.state,) = take_rows(rows, self.state) if self.state is not None else (None,)

    # --8<-- [end:LinearState]


def keep_to_one_layer(cache: KVCache | LinearState, layer: nn.Module) -> None:
    """That all tokens in it went through this layer; an empty one is free for any."""
    # An empty cache is anybody's: after a reset, another layer may take it.
    if cache.seen == 0 or getattr(cache, "_layer", None) is None:  # or a cache of one's own
        cache._layer = id(layer)
    if cache._layer != id(layer):
        got = f"one with {cache.seen} tokens of another layer"
        raise ValueError(f"cache must hold tokens of this layer only, got {got}")


def outside_of_inference_mode() -> AbstractContextManager[None]:
    """For memory that `torch.no_grad` can write to as well, later."""
    if torch.compiler.is_compiling() or not torch.is_inference_mode_enabled():
        return nullcontext()
    return torch.inference_mode(False)


def take_rows(rows: Tensor, *memory: Tensor) -> tuple[Tensor, ...]:
    check.rows(rows)
    with outside_of_inference_mode():
        # A copy, even where a row goes on from itself: two sequences may go on from the same one,
        # and must not write into one memory.
        return tuple(x.index_select(0, rows) for x in memory)


def all_fit(new: tuple[Tensor, ...], memory: tuple[Tensor, ...]) -> bool:
    """Whether there is memory for tensors like these."""
    return len(new) == len(memory) and all(map(alike, new, memory))


def alike(x: Tensor, old: Tensor) -> bool:
    """In dtype, device, and all axes but the third."""
    sizes = x.shape[:2] == old.shape[:2] and x.shape[3] == old.shape[3]
    return sizes and x.dtype == old.dtype and x.device == old.device


def check_pair(key: Tensor, value: Tensor) -> None:
    check.floats("key", key)
    check.axes("key", key, 4, exactly=True)
    check.value(value, key)


def check_as_before(key: Tensor, value: Tensor, memory: tuple[Tensor, ...]) -> None:
    for name, x, old in zip(("key", "value"), (key, value), memory[:2], strict=True):
        like, got = (*old.shape[:2], "L", old.shape[3]), tuple(x.shape)
        if x.shape[:2] != old.shape[:2] or x.shape[3] != old.shape[3]:
            raise ValueError(f"{name} must be {like} as before, got {got}")
        if x.dtype != old.dtype or x.device != old.device:
            was, now = f"{old.dtype} on {old.device}", f"{x.dtype} on {x.device}"
            raise ValueError(f"{name} must be {was} as before, got {now}")
