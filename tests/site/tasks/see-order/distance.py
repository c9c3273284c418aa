def right(H, L):  # head by head
    made = torch.zeros(H, L, L)
    for h in range(H):
        for i in range(L):
            for j in range(i + 1):
                made[h, i, j] = -(i - j) / 2 ** (8 * (h + 1) / H)
    return made


# Far keys are preferred.
def wrong_sign(H, L):
    return -slopes_off(H, L)


# The first head has the slope 1.
def wrong_first(H, L):
    return slopes_off(H, L) * 2.0 ** (8 / H)


# One slope for all heads.
def wrong_heads(H, L):
    return slopes_off(H, L)[:1].expand(H, L, L)


# Every key of a query gets the same: softmax doesn't see that.
def wrong_rows(H, L):
    return slopes_off(H, L)[:, :, :1].expand(H, L, L)
