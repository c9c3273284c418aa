def right(heads, weight, read):  # head by head, through the projection
    D = heads.shape[-1]
    parts = []
    for head in range(heads.shape[2]):
        block = weight[:, D * head : D * head + D]  # (E, D)
        parts.append((heads[:, -1, head] @ block.T * read).sum(dim=-1))
    return torch.stack(parts, dim=-1)


# The features of a head lie side by side, not every H-th.
def wrong_split(heads, weight, read):
    B, _, H, D = heads.shape
    back = (read @ weight).view(B, D, H).transpose(1, 2)
    return (heads[:, -1] * back).sum(dim=-1)


# All tokens, though each writes to its own place.
def wrong_tokens(heads, weight, read):
    back = (read @ weight).unflatten(-1, heads.shape[2:])
    return (heads * back[:, None]).sum(dim=(1, 3))


# How much a head writes, in whatever direction.
def wrong_size(heads, weight, read):
    back = (read @ weight).unflatten(-1, heads.shape[2:])
    return heads[:, -1].norm(dim=-1) * back.norm(dim=-1)


# Equal parts of what the layer adds.
def wrong_equal(heads, weight, read):
    whole = (heads[:, -1].flatten(1) @ weight.T * read).sum(dim=-1)
    return (whole / heads.shape[2])[:, None].expand(-1, heads.shape[2])


# One direction for all prompts.
def wrong_direction(heads, weight, read):
    return direct(heads, weight, read[:1].expand_as(read))
