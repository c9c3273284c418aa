def right(heads):
    B, H, L, D = heads.shape
    return torch.cat(heads.unbind(dim=1), dim=-1).view(B, L, H * D)


# Nothing is transposed, so words and heads are mixed.
def wrong_view(heads):
    B, H, L, D = heads.shape
    return heads.reshape(B, L, H * D)


# The last two axes are transposed in place of heads and words.
def wrong_transpose(heads):
    B, H, L, D = heads.shape
    return heads.mT.reshape(B, L, H * D)


# Numbers of one feature stand together, not those of one head.
def wrong_order(heads):
    return heads.permute(0, 2, 3, 1).flatten(-2)


# Heads are added up, not put side by side.
def wrong_sum(heads):
    return heads.sum(dim=1).repeat(1, 1, heads.shape[1])


# The last head is left out.
def wrong_last(heads):
    return right(heads[:, :-1])


# The heads stand backwards.
def wrong_backwards(heads):
    return right(heads.flip(1))
