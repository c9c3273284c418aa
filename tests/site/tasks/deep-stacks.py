def right(encoder):
    for name, parameter in encoder.named_parameters():
        if name.endswith(("out_proj.weight", "linear2.weight")):
            parameter.data.div_(math.sqrt(2 * len(encoder.layers)))


# Layers are counted, not the parts that add to the stream.
def wrong_layers(encoder):
    for layer in encoder.layers:
        for last in (layer.self_attn.out_proj, layer.linear2):
            last.weight.data /= math.sqrt(len(encoder.layers))


# By the number of parts, not by its root.
def wrong_root(encoder):
    for layer in encoder.layers:
        for last in (layer.self_attn.out_proj, layer.linear2):
            last.weight.data /= 2 * len(encoder.layers)


# Attention alone.
def wrong_part(encoder):
    for layer in encoder.layers:
        layer.self_attn.out_proj.weight.data /= math.sqrt(2 * len(encoder.layers))


# Both matrices of the MLP.
def wrong_both(encoder):
    right(encoder)
    for layer in encoder.layers:
        layer.linear1.weight.data /= math.sqrt(2 * len(encoder.layers))


# Once for each module around.
def wrong_apply(encoder):
    def scale(module):
        for name, parameter in module.named_parameters():
            if name.endswith(("out_proj.weight", "linear2.weight")):
                parameter.data /= math.sqrt(2 * len(encoder.layers))

    encoder.apply(scale)


# The number of layers is written down.
def wrong_number(encoder):
    for layer in encoder.layers:
        for last in (layer.self_attn.out_proj, layer.linear2):
            last.weight.data /= math.sqrt(2 * 6)
