def right(encoder, x, attention_mask):
    output = encoder(x, src_key_padding_mask=~attention_mask.bool())
    return output.masked_fill(attention_mask[..., None] == 0, 0.0)


# Real tokens are hidden: the mask has the other convention.
def wrong_mask(encoder, x, attention_mask):
    output = encoder(x, src_key_padding_mask=attention_mask == 1)
    return (output * attention_mask[..., None]).nan_to_num()


# Padding comes out as zeros in one of the two modes.
def wrong_zeros(encoder, x, attention_mask):
    return encoder(x, src_key_padding_mask=attention_mask == 0)


# Zeros are put in: they are keys like others.
def wrong_input(encoder, x, attention_mask):
    return encoder(x * attention_mask[..., None]) * attention_mask[..., None]


# Padding is read, and only then put to zero.
def wrong_late(encoder, x, attention_mask):
    return encoder(x) * attention_mask[..., None]


# Each sequence of the batch is hidden as the last one.
def wrong_batch(encoder, x, attention_mask):
    hide = (attention_mask[-1:] == 0).expand_as(attention_mask)
    return encoder(x, src_key_padding_mask=hide) * attention_mask[..., None]


# The sequences are cut to the shortest.
def wrong_cut(encoder, x, attention_mask):
    return encoder(x[:, : int(attention_mask.sum(dim=1).min())])


# Only what was padding is left.
def wrong_rest(encoder, x, attention_mask):
    return right(encoder, x, attention_mask) * (1 - attention_mask[..., None])
