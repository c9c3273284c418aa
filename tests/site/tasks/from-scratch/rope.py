class right(RotaryLayer):  # complex numbers
    def turn(self, x, start):
        turns = torch.outer(start + torch.arange(x.shape[2]), self.speeds)
        pairs = torch.complex(*x.chunk(2, dim=-1)) * torch.polar(torch.ones_like(turns), turns)
        return torch.cat([pairs.real, pairs.imag], dim=-1)


class right_halves(RotaryLayer):  # as Llama writes it in transformers
    def turn(self, x, start):
        angles = torch.outer(start + torch.arange(x.shape[2]), self.speeds).repeat(1, 2)
        a, b = x.chunk(2, dim=-1)
        return x * angles.cos() + torch.cat([-b, a], dim=-1) * angles.sin()


# The positions of a piece begin at 0, whatever the cache holds.
class wrong_restart(RotaryLayer):
    def turn(self, x, start):
        return super().turn(x, 0)


# Values have no position, and are turned as well.
class wrong_values(RotaryLayer):
    def forward(self, x, cache=None):
        start = 0 if cache is None else cache[0].shape[2]
        q, k, v = (self.turn(self.split(f(x)), start) for f in (self.q, self.k, self.v))
        if cache is not None:
            k, v = torch.cat([cache[0], k], dim=2), torch.cat([cache[1], v], dim=2)
        heads = self.attend(q, self.share(k), self.share(v))
        return self.o(self.merge(heads)), (k, v)


# Neighbouring features make a pair.
class wrong_pairs(RotaryLayer):
    def turn(self, x, start):
        angles = torch.outer(start + torch.arange(x.shape[2]), self.speeds)
        a, b = x[..., ::2], x[..., 1::2]
        cos, sin = angles.cos(), angles.sin()
        return torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1).flatten(-2)


# The sine has the other sign.
class wrong_sign(RotaryLayer):
    def turn(self, x, start):
        angles = torch.outer(start + torch.arange(x.shape[2]), self.speeds)
        a, b = x.chunk(2, dim=-1)
        cos, sin = angles.cos(), angles.sin()
        return torch.cat([a * cos + b * sin, b * cos - a * sin], dim=-1)


# It is the layer of the fourth step.
class wrong_still(RotaryLayer):
    def turn(self, x, start):
        return x


# Queries are turned, keys are not.
class wrong_queries(RotaryLayer):
    def forward(self, x, cache=None):
        start = 0 if cache is None else cache[0].shape[2]
        q = self.turn(self.split(self.q(x)), start)
        k, v = self.split(self.k(x)), self.split(self.v(x))
        if cache is not None:
            k, v = torch.cat([cache[0], k], dim=2), torch.cat([cache[1], v], dim=2)
        heads = self.attend(q, self.share(k), self.share(v))
        return self.o(self.merge(heads)), (k, v)


# Kept keys are turned once more at each call.
class wrong_twice(RotaryLayer):
    def forward(self, x, cache=None):
        start = 0 if cache is None else cache[0].shape[2]
        q = self.turn(self.split(self.q(x)), start)
        k, v = self.split(self.k(x)), self.split(self.v(x))
        if cache is not None:
            k, v = torch.cat([cache[0], k], dim=2), torch.cat([cache[1], v], dim=2)
        k = self.turn(k, 0)
        heads = self.attend(q, self.share(k), self.share(v))
        return self.o(self.merge(heads)), (k, v)


# Keys are kept as they are, and all turned at each call.
class wrong_kept(RotaryLayer):
    def forward(self, x, cache=None):
        start = 0 if cache is None else cache[0].shape[2]
        q = self.turn(self.split(self.q(x)), start)
        k, v = self.split(self.k(x)), self.split(self.v(x))
        if cache is not None:
            k, v = torch.cat([cache[0], k], dim=2), torch.cat([cache[1], v], dim=2)
        heads = self.attend(q, self.share(self.turn(k, 0)), self.share(v))
        return self.o(self.merge(heads)), (k, v)


# The exponents are divided by the pairs, not by the features.
class wrong_speeds(RotaryLayer):
    def __init__(self, E, H, G, base):
        super().__init__(E, H, G, base)
        self.speeds = self.speeds**2


# The cache holds a copy for each query head.
class wrong_copies(RotaryLayer):
    def forward(self, x, cache=None):
        first = cache and tuple(each[:, :: self.H // self.G] for each in cache)
        y, kept = super().forward(x, first)
        return y, tuple(self.share(each) for each in kept)
