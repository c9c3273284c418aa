import matplotlib
import pytest
import torch

torch.set_num_threads(1)  # one a worker: more wait for each other's cores, with scratch memory each


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@pytest.fixture(autouse=True, scope="session")
def no_window():
    matplotlib.use("agg")


@pytest.fixture(autouse=True)
def no_figure_left():
    yield
    import matplotlib.pyplot as plt

    plt.close("all")
