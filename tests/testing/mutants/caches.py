"""Caches that disagree with the full pass."""

from typing import ClassVar

import torch
from bases import Cache, Decoder

from mutants.registry import broken


@broken("each call begins at position 0", "cache", position_ids=False)
class FromZero(Decoder):
    def positions(self, x, position_ids, cache):
        return super().positions(x, position_ids, None)


@broken("a new token has the last one's position", "cache", position_ids=False)
class OneBack(Decoder):
    def positions(self, x, position_ids, cache):
        found = super().positions(x, position_ids, cache)
        return found - 1 if position_ids is None and cache is not None and cache.seen else found


@broken("a new token is one position too far", "cache", position_ids=False)
class OneFurther(Decoder):
    def positions(self, x, position_ids, cache):
        found = super().positions(x, position_ids, cache)
        return found + 1 if position_ids is None and cache is not None and cache.seen else found


@broken("positions count calls, not tokens", "cache cache-chunks", position_ids=False)
class CountsCalls(Decoder):
    def remember(self, cache, k, v):
        seen = cache.seen
        found = super().remember(cache, k, v)
        cache.seen = seen + 1
        return found


@broken("tokens of one call all have its first position", "cache-chunks cache", position_ids=False)
class OnePosition(Decoder):
    def positions(self, x, position_ids, cache):
        found = super().positions(x, position_ids, cache)
        return (
            found[:1].expand_as(found)
            if position_ids is None and cache is not None and cache.seen
            else found
        )


@broken("a chunk sees its own future", "cache-chunks cache")
class ChunkAhead(Decoder):
    def visible(self, q, k, cache):
        L, S = q.shape[2], k.shape[2]
        return super().visible(q, k, cache) if L == S else torch.ones(L, S, dtype=torch.bool)


@broken("decoding with is_causal from the upper left corner", "cache")
class UpperLeft(Decoder):
    def causal(self, L, S):
        return torch.ones(L, S, dtype=torch.bool).tril()


@broken("a chunk does not see itself", "cache cache-chunks")
class OldOnly(Decoder):
    def visible(self, q, k, cache):
        L, S = q.shape[2], k.shape[2]
        seen = super().visible(q, k, cache)
        return seen if L == S else torch.ones(L, S, dtype=torch.bool).tril(S - L - 1)


@broken("a chunk sees its first token only", "cache-chunks")
class ChunkFirst(Decoder):
    def visible(self, q, k, cache):
        L, S = q.shape[2], k.shape[2]
        seen = super().visible(q, k, cache)
        if L < S:
            seen[1:] = seen[:1]
        return seen


class LastCall(Cache):
    def update(self, key, value, keep=None):
        found = super().update(key, value, keep)
        self.key, self.value = key, value
        return found


@broken("only the call before is kept", "cache", new_cache=LastCall)
class KeepsLastCall(Decoder):
    pass


class Replaces(Cache):
    def update(self, key, value, keep=None):
        joined = super().update(key, value, keep)
        if joined[0].shape[2] > key.shape[2] > 0:
            n = key.shape[2]
            self.key = torch.cat([joined[0][:, :, : -n - 1], joined[0][:, :, -n:]], dim=2)
            self.value = torch.cat([joined[1][:, :, : -n - 1], joined[1][:, :, -n:]], dim=2)
        return joined


@broken("a new token is written over the last one", "cache", new_cache=Replaces)
class Overwrites(Decoder):
    pass


class KeysOnly(Cache):
    def update(self, key, value, keep=None):
        old = self.value
        keys, _ = super().update(key, value, keep)
        if old is not None and old.shape[2] > 1:
            self.value = torch.cat([old.roll(1, dims=2), value], dim=2)
        return keys, self.value


@broken("values move one place against their keys", "cache", new_cache=KeysOnly)
class ValuesMoved(Decoder):
    pass


class Padded(Cache):
    def update(self, key, value, keep=None):
        joined = super().update(key, value, keep)
        return tuple(torch.cat([torch.zeros_like(x[:, :, :1]), x], dim=2) for x in joined)


@broken("an empty slot of the memory is seen", "cache", new_cache=Padded)
class EmptySlot(Decoder):
    pass


class OneSequence(Cache):
    def update(self, key, value, keep=None):
        if self.key is not None:
            self.key, self.value = (x[:1].expand_as(x) for x in (self.key, self.value))
        return super().update(key, value, keep)


@broken("the first sequence's cache is used for all", "cache", new_cache=OneSequence)
class SharedByBatch(Decoder):
    pass


class Half(Cache):
    def update(self, key, value, keep=None):
        keys, values = super().update(key, value, keep)
        self.key, self.value = (x.bfloat16().to(x.dtype) for x in (self.key, self.value))
        return keys, values


@broken("the cache is kept in bfloat16", "cache", new_cache=Half)
class KeptInHalf(Decoder):
    pass


class Backwards(Cache):
    def update(self, key, value, keep=None):
        self.seen += key.shape[2]
        if self.key is not None:
            key = torch.cat([key, self.key], dim=2)
            value = torch.cat([value, self.value], dim=2)
        self.key, self.value = key, value
        return key, value


@broken("new tokens are put in front", "cache cache-chunks", new_cache=Backwards)
class PutInFront(Decoder):
    pass


class Global(Cache):
    memory: ClassVar = {}

    def __init__(self):
        self.seen = 0

    @property
    def key(self):
        return self.memory.get("key")

    @key.setter
    def key(self, key):
        self.memory["key"] = key

    @property
    def value(self):
        return self.memory.get("value")

    @value.setter
    def value(self, value):
        self.memory["value"] = value


@broken("all caches share one memory", "cache cache-chunks", new_cache=Global)
class SharedMemory(Decoder):
    pass
