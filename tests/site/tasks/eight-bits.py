import torch


def right(key):
    key = key - key.mean(dim=-2, keepdim=True)
    scale = key.abs().amax(dim=-1, keepdim=True) / 127
    return (key / scale).round().to(torch.int8), scale


# Not centred.
def wrong_mean(key):
    scale = key.abs().amax(dim=-1, keepdim=True) / 127
    return (key / scale).round().to(torch.int8), scale


# The mean of each token.
def wrong_axis(key):
    key = key - key.mean(dim=-1, keepdim=True)
    scale = key.abs().amax(dim=-1, keepdim=True) / 127
    return (key / scale).round().to(torch.int8), scale


# One scale for all tokens.
def wrong_scale(key):
    key = key - key.mean(dim=-2, keepdim=True)
    scale = key.abs().amax(dim=(-2, -1), keepdim=True) / 127
    return (key / scale).round().to(torch.int8), scale.expand(*key.shape[:-1], 1)


# Cut off, not rounded.
def wrong_cut(key):
    key = key - key.mean(dim=-2, keepdim=True)
    scale = key.abs().amax(dim=-1, keepdim=True) / 127
    return (key / scale * 1.000001).to(torch.int8), scale


# 128 does not fit.
def wrong_top(key):
    key = key - key.mean(dim=-2, keepdim=True)
    scale = key.abs().amax(dim=-1, keepdim=True) / 128
    return (key / scale).round().to(torch.int32).to(torch.int8), scale


# Changes its input.
def wrong_in_place(key):
    key -= key.mean(dim=-2, keepdim=True)
    scale = key.abs().amax(dim=-1, keepdim=True) / 127
    return (key / scale).round().to(torch.int8), scale
