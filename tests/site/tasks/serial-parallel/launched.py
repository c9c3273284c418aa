class ByName(TorchDispatchMode):  # torch itself knows its views
    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        if not operation.is_view and operation is not torch.ops.aten._unsafe_view.default:
            self.names.append(str(operation))
        return operation(*args, **(kwargs or {}))


def right(function):
    with ByName() as watch:
        function()
    return len(watch.names)


class All(ByName):
    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        self.names.append(str(operation))
        return operation(*args, **(kwargs or {}))


# Views are counted.
def wrong_views(function):
    with All() as watch:
        function()
    return len(watch.names)


# Kinds of operations, and not how often.
def wrong_kinds(function):
    with ByName() as watch:
        function()
    return len(set(watch.names))


# Products alone.
def wrong_products(function):
    with ByName() as watch:
        function()
    return sum("mm" in name for name in watch.names)


# Copies are taken for views.
def wrong_copies(function):
    with ByName() as watch:
        function()
    return sum("clone" not in name for name in watch.names)
