class right(nn.Module):  # groups as an axis of their own
    def __init__(self, E, H, G):
        super().__init__()
        self.shape = G, H // G, E // H
        self.q, self.o = nn.Linear(E, E, bias=False), nn.Linear(E, E, bias=False)
        self.k = nn.Linear(E, G * E // H, bias=False)
        self.v = nn.Linear(E, G * E // H, bias=False)

    def forward(self, x, cache=None):
        (G, N, D), (B, L, E) = self.shape, x.shape
        q = self.q(x).view(B, L, G, N, D)
        k, v = (f(x).view(B, L, G, D) for f in (self.k, self.v))
        if cache:
            k, v = (torch.cat([old, new], dim=1) for old, new in zip(cache, (k, v), strict=True))
        scores = torch.einsum("blgnd,bsgd->bgnls", q, k) / D**0.5
        late = torch.ones(L, k.shape[1]).triu(k.shape[1] - L + 1).bool()
        weights = scores.masked_fill(late, -1e9).softmax(-1)
        out = torch.einsum("bgnls,bsgd->blgnd", weights, v)
        return self.o(out.reshape(B, L, E)), (k, v)


# The root of D is forgotten.
class wrong_scale(Layer):
    def attend(self, q, k, v):
        return super().attend(q * math.sqrt(self.D), k, v)


# Each query shares out over queries, not over keys.
class wrong_axis(Layer):
    def attend(self, q, k, v):
        scores = q @ k.mT / math.sqrt(self.D)
        seen = torch.ones(scores.shape[-2:]).tril().bool()
        return scores.masked_fill(~seen, -torch.inf).softmax(dim=-2) @ v


# Without a mask, later words are seen.
class wrong_future(Layer):
    def attend(self, q, k, v):
        return (q @ k.mT / math.sqrt(self.D)).softmax(dim=-1) @ v


# The heads are cut out of the memory as it lies.
class wrong_split(Layer):
    def split(self, x):
        return x.reshape(len(x), -1, x.shape[1], self.D)


# Query heads take the keys in turn.
class wrong_groups(Layer):
    def share(self, x):
        return x.repeat(1, self.H // self.G, 1, 1)


# With a cache the mask begins at the first key.
class wrong_corner(Layer):
    def attend(self, q, k, v):
        scores = q @ k.mT / math.sqrt(self.D)
        seen = torch.ones(scores.shape[-2:]).tril().bool()
        return scores.masked_fill(~seen, -torch.inf).softmax(dim=-1) @ v


# What is handed on are this call's keys alone.
class wrong_cache(Layer):
    def forward(self, x, cache=None):
        y, _ = super().forward(x, cache)
        return y, (self.split(self.k(x)), self.split(self.v(x)))


# The cache holds a copy for each query head.
class wrong_copies(Layer):
    def forward(self, x, cache=None):
        first = cache and tuple(each[:, :: self.H // self.G] for each in cache)
        y, kept = super().forward(x, first)
        return y, tuple(self.share(each) for each in kept)
