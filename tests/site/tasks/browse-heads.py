def right(content):
    import struct

    (size,) = struct.unpack_from("<I", content)
    tokens = json.loads(content[4 : 4 + size])["tokens"]
    L, heads = len(tokens), layers * H
    seen = L * (L + 1) // 2 if causal else L * L
    packed = torch.frombuffer(bytearray(content[-heads * seen :]), dtype=torch.uint8)
    rows, columns = torch.tril_indices(L, L)
    weights = torch.zeros(heads, L, L)
    weights[:, rows, columns] = packed.view(heads, seen) / 255
    return tokens, weights


# Bytes from 0 to 256.
def wrong_scale(content):
    tokens, weights = right(content)
    return tokens, weights * 255 / 256 - 1e-3


# Queries and keys are interchanged.
def wrong_axis(content):
    tokens, weights = right(content)
    return tokens, weights.mT


# The statistics are taken for weights.
def wrong_start(content):
    tokens, weights = right(content)
    start = 4 + int.from_bytes(content[:4], "little")
    whole = torch.tensor(list(content[start:]))[
        : int((weights[0] * 0 + 1).tril().sum()) * layers * H
    ]
    seen = torch.ones(len(tokens), len(tokens)).bool().tril()
    weights[:, seen] = whole.view(layers * H, -1) / 255
    return tokens, weights


# The words as they were typed, not the tokens.
def wrong_tokens(content):
    tokens, weights = right(content)
    return "".join(tokens).split("▁"), weights


# Layers and heads apart.
def wrong_layers(content):
    tokens, weights = right(content)
    return tokens, weights.unflatten(0, (layers, H))
