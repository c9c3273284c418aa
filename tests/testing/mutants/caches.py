"""Caches that disagree with the full pass."""

from typing import ClassVar

import torch
from bases import Cache, Decoder, TupleDecoder

from mutants.registry import broken

WINDOW = {"sizes": {"window": 4}, "window": 4}


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
        return found[:1].expand_as(found) if position_ids is None and cache is not None and cache.seen else found


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
        keys, values = super().update(key, value, keep)
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


class Stays(Cache):
    def crop(self, length):
        self.seen = length


@broken("cropping leaves the old keys", "cache-crop", new_cache=Stays)
class CropsCounter(Decoder):
    pass


class Forgets(Cache):
    def crop(self, length):
        self.key, self.value = self.key[:, :, :length], self.value[:, :, :length]


@broken("cropping leaves the counter", "cache-crop", new_cache=Forgets, position_ids=False)
class CropsKeys(Decoder):
    pass


class CropsOneMore(Cache):
    def crop(self, length):
        super().crop(length - 1)
        self.seen = length


@broken("cropping takes one too many", "cache-crop", new_cache=CropsOneMore)
class CropsTooMany(Decoder):
    pass


class CropsValues(Cache):
    def crop(self, length):
        self.key, self.value = self.key[:, :, :length], self.value[:, :, -length:]
        self.seen = length


@broken("cropping takes values from the other end", "cache-crop", new_cache=CropsValues)
class CropsOtherEnd(Decoder):
    pass


class CropsFront(Cache):
    def crop(self, length):
        self.key, self.value = self.key[:, :, -length:], self.value[:, :, -length:]
        self.seen = length


@broken("cropping keeps the last tokens", "cache-crop", new_cache=CropsFront)
class CropsBeginning(Decoder):
    pass


@broken("cached keys are turned again", "cache")
class TurnedAgain(Decoder):
    def remember(self, cache, k, v):
        if cache.key is not None:
            steps = self.angles(torch.ones(1), k.dtype)
            cache.key = self.rotate(cache.key, steps)
        return super().remember(cache, k, v)


@broken("in a cache keys are not turned", "cache")
class NotTurned(Decoder):
    def forward(self, x, position_ids=None, cache=None):
        self.cached = cache is not None
        return super().forward(x, position_ids, cache)

    def turn(self, q, k, v, positions):
        turned = super().turn(q, k, v, positions)
        return (turned[0], k, v) if self.cached else turned


@broken("the cache is filled after attending", "cache")
class FilledAfterwards(Decoder):
    def remember(self, cache, k, v):
        old = cache.key, cache.value
        found = super().remember(cache, k, v)
        return found if old[0] is None else old

    def visible(self, q, k, cache):
        L, S = q.shape[2], k.shape[2]
        return torch.ones(L, S, dtype=torch.bool) if L < S else super().visible(q, k, cache)


@broken("the window keeps one key too few", "cache", **WINDOW)
class KeepsTooFew(Decoder):
    def remember(self, cache, k, v):
        return cache.update(k, v, keep=self.window - 2)


@broken("the cache's window is one longer", "cache", **WINDOW)
class LongerInCache(Decoder):
    def remember(self, cache, k, v):
        return cache.update(k, v, keep=self.window)

    def visible(self, q, k, cache):
        L, S = q.shape[2], k.shape[2]
        return super().visible(q, k, cache) if L == S else self.causal(L, S)


@broken("the window moves positions back", "cache", position_ids=False, **WINDOW)
class MovesBack(Decoder):
    def remember(self, cache, k, v):
        found = super().remember(cache, k, v)
        cache.seen = cache.key.shape[2]
        return found


@broken("the full pass has no window", "past future formula cache", **WINDOW)
class NoWindow(Decoder):
    def near(self, L, S):
        return torch.ones(L, S, dtype=torch.bool)


@broken("the window has one key more in the full pass", "past future formula cache", **WINDOW)
class OneMore(Decoder):
    def near(self, L, S):
        return torch.ones(L, S, dtype=torch.bool).triu(S - L - self.window)


@broken("tuple: the old cache is handed back", "cache")
class HandsOld(TupleDecoder):
    def handed(self, new, past):
        return new if past is None else past


@broken("tuple: only the new keys are handed back", "cache")
class HandsNew(TupleDecoder):
    def joined(self, past, k, v):
        self.new = k, v
        return super().joined(past, k, v)

    def handed(self, new, past):
        return self.new


@broken("tuple: keys and values change places", "cache")
class HandsTurned(TupleDecoder):
    def handed(self, new, past):
        return new if past is None else new[::-1]


@broken("tuple: the values of the past are not used", "cache")
class PastValues(TupleDecoder):
    def joined(self, past, k, v):
        k, joined = super().joined(past, k, v)
        if past is not None:
            joined = torch.cat([torch.zeros_like(past[1]), v], dim=2)
        return k, joined


@broken("tuple: the past comes behind", "cache cache-chunks")
class PastBehind(TupleDecoder):
    def joined(self, past, k, v):
        if past is None:
            return k, v
        return torch.cat([k, past[0]], dim=2), torch.cat([v, past[1]], dim=2)


@broken("tuple: the past is changed in place", "cache inputs-kept")
class PastInPlace(TupleDecoder):
    def joined(self, past, k, v):
        found = super().joined(past, k, v)
        if past is not None:
            past[0].data.mul_(1.5)
        return found


@broken("tuple: the first key is overwritten", "cache")
class FirstOverwritten(TupleDecoder):
    def joined(self, past, k, v):
        keys, values = super().joined(past, k, v)
        if past is not None:
            keys = torch.cat([k[:, :, :1], keys[:, :, 1:]], dim=2)
        return keys, values


@broken("without a cache it goes on with one of its own", "repeat batch cache")
class OwnCache(Decoder):
    own = None

    def forward(self, x, position_ids=None, cache=None):
        if cache is None and not self.training:
            if self.own is None or self.own.key.shape[0] != x.shape[0] or self.own.key.dtype != x.dtype:
                self.own = Cache()
            cache = self.own
        return super().forward(x, position_ids, cache)


@broken("the layer keeps the keys of the sequence before", "repeat cache batch")
class Stale(Decoder):
    old = None

    def attend(self, query, key, value, seen=None, bias=None):
        before, self.old = self.old, (key.detach(), value.detach())
        if before is not None and before[0].shape == key.shape and key.dtype == before[0].dtype:
            key = torch.cat([before[0][:, :, :1], key[:, :, 1:]], dim=2)
        return super().attend(query, key, value, seen, bias)
