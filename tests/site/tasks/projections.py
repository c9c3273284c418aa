def right(fused, num_heads, device):
    D = len(fused) // (3 * num_heads)
    first, own = device * num_heads // 2, num_heads // 2
    rows = [
        slice((role * num_heads + first) * D, (role * num_heads + first + own) * D)
        for role in range(3)
    ]
    return torch.cat([fused[each] for each in rows])


# The upper or lower half of the matrix: one has all queries.
def wrong_half(fused, num_heads, device):
    return fused.chunk(2)[device]


# Every second head.
def wrong_every(fused, num_heads, device):
    return fused.unflatten(0, (3, num_heads, -1))[:, device::2].flatten(0, 2)


# Half of each head.
def wrong_size(fused, num_heads, device):
    blocks = fused.unflatten(0, (3, num_heads, -1))
    return blocks.chunk(2, dim=2)[device].flatten(0, 2)


# The same half on both.
def wrong_device(fused, num_heads, device):
    return right(fused, num_heads, 0)


# Everything.
def wrong_all(fused, num_heads, device):
    return fused


# The devices are interchanged.
def wrong_other(fused, num_heads, device):
    return right(fused, num_heads, 1 - device)
