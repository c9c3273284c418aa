class right(Suspect):  # PyTorch's kernel in the place of five methods
    def forward(self, x, keep=None, cache=None):
        q, k, v = (self.split(f(x)) for f in (self.q, self.k, self.v))
        if cache is not None:
            k, v = (torch.cat([a, b], 2) for a, b in zip(cache, (k, v), strict=True))
        L, S = x.shape[1], k.shape[2]
        seen = torch.ones(L, S).tril(S - L).bool()
        if keep is not None:
            seen = seen & keep[:, None, None]
        p = self.dropout if self.training else 0.0
        options = {"attn_mask": seen, "dropout_p": p, "enable_gqa": True}
        heads = F.scaled_dot_product_attention(q, k, v, **options)
        return self.o(self.merge(heads)), (k, v)


# Dropout is gone, in training too.
class wrong_dropout(Mended):
    def drop(self, weights):
        return weights


# A minus sign in the wrong place: padding is hidden by nothing.
class wrong_padding(Mended):
    def hide_padding(self, scores, keep):
        return scores.masked_fill(~keep[:, None, None], 1e-9)


# The mask still begins at the top left.
class wrong_corner(Mended):
    def visible(self, L, S):
        return torch.ones(L, S).tril().bool()


# The groups still take turns.
class wrong_groups(Mended):
    def share(self, x):
        return x.repeat(1, self.H // self.G, 1, 1)


# Hidden keys are set to zero after the softmax, and still count in its sum.
class wrong_rows(Mended):
    def weigh(self, scores, visible):
        return scores.softmax(dim=-1) * visible


# Five probes are not all there is: a row that sees nothing becomes NaN.
class wrong_nan(Mended):
    def hide_padding(self, scores, keep):
        return scores.masked_fill(~keep[:, None, None], -torch.inf)

    def weigh(self, scores, visible):
        return scores.masked_fill(~visible, -torch.inf).softmax(dim=-1)
