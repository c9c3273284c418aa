def right(split, B, L, H, D):  # random numbers, each looked up at its place
    x = torch.randn(B, L, H * D)
    expected = torch.stack(x.split(D, dim=-1), dim=1)
    return (split(x, H) != expected).double().mean()


# Only the shape.
def wrong_shape(split, B, L, H, D):
    return float(split(torch.zeros(B, L, H * D), H).shape != (B, H, L, D))


# One token only: the tokens can't be mixed.
def wrong_token(split, B, L, H, D):
    x = torch.arange(B * H * D).view(B, 1, H * D)
    return (split(x, H) != x.view(B, 1, H, D).transpose(1, 2)).double().mean()


# The view is taken for right.
def wrong_view(split, B, L, H, D):
    x = torch.arange(B * L * H * D).view(B, L, H * D)
    return (split(x, H) != x.view(B, H, L, D)).double().mean()


# Whether anything is wrong, and not how much.
def wrong_any(split, B, L, H, D):
    return float(misplaced(split, B, L, H, D) > 0)
