def right(model, *inputs):
    parts = list(model.modules())
    training = [part for part in parts if part.training]
    found = attention_maps(model.eval(), *inputs).maps
    for part in training:
        part.training = True
    return found


# In whichever mode: the package refuses, with a ValueError.
def wrong_mode(model, *inputs):
    return attention_maps(model, *inputs).maps


# Evaluation mode stays.
def wrong_eval(model, *inputs):
    return attention_maps(model.eval(), *inputs).maps


# The frozen part is put into training.
def wrong_train(model, *inputs):
    found = attention_maps(model.eval(), *inputs).maps
    model.train()
    return found


# Only the model itself has its mode back.
def wrong_top(model, *inputs):
    training = model.training
    found = attention_maps(model.eval(), *inputs).maps
    model.training = training
    return found


# The mean of the heads.
def wrong_mean(model, *inputs):
    return [x.mean(dim=1, keepdim=True).expand_as(x) for x in right(model, *inputs)]


# The first layer's maps stand for all.
def wrong_first(model, *inputs):
    return right(model, *inputs)[:1]
