def right(model):
    for module in model.modules():
        for name in ("p", "dropout"):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, 0.0)


# The attention's dropout is a number, no module.
def wrong_modules(model):
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0


# Only the attention weights are thought of.
def wrong_weights(model):
    for module in model.modules():
        if isinstance(module, nn.MultiheadAttention):
            module.dropout = 0.0


# Evaluation mode is another mode.
def wrong_eval(model):
    model.eval()


# Modules within modules are forgotten.
def wrong_children(model):
    for module in model.children():
        if isinstance(module, nn.MultiheadAttention):
            module.dropout = 0.0


# Nothing random is left, and nothing else: all weights are zero.
def wrong_zero(model):
    for parameter in model.parameters():
        parameter.data.zero_()


# What is dropped is chosen once for all runs, but dropped.
def wrong_seed(model):
    model.register_forward_pre_hook(lambda *_: torch.manual_seed(0))
