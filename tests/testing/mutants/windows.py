"""Caches that are cropped, that drop old tokens, or that are handed back as pairs."""

import torch
from bases import Cache, Decoder, TupleDecoder

from mutants.registry import broken

WINDOW = {"sizes": {"window": 4}, "window": 4}


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
            if (
                self.own is None
                or self.own.key.shape[0] != x.shape[0]
                or self.own.key.dtype != x.dtype
            ):
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
