import os

import matplotlib
import pytest
import tiers
import torch
from mhsite.stories import models
from mhsite.stories.source import ROOT, SourceError

# The processes that tests start import this clone, whichever is installed.
os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "scripts")])
torch.set_num_threads(1)  # one a worker: more wait for each other's cores, with scratch memory each


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def reports_in_english():
    """Whatever the machine has set, or the code of a page in the test before."""
    os.environ["MHATTN_LANGUAGE"] = "en"


@pytest.fixture(autouse=True, scope="session")
def no_window():
    matplotlib.use("agg")


@pytest.fixture(autouse=True)
def no_figure_left():
    yield
    import matplotlib.pyplot as plt

    plt.close("all")


@pytest.fixture(scope="session")
def trained():
    """The files of the trained models by their titles; without network, tests are skipped."""
    try:
        return {model.title: models.fetch(model) for model in models.known()}
    except SourceError as error:
        give_up = pytest.fail if os.environ.get("CI") else pytest.skip
        give_up(error.message)


def pytest_addoption(parser):
    parser.addoption(
        "--slow-sample",
        type=float,
        metavar="SECONDS",
        help="with -m slow: of one core, for tests that the change touches and others, drawn",
    )


@pytest.hookimpl(tryfirst=True)  # before `-m` leaves most of them out
def pytest_itemcollected(item):
    found = item.config.stash.setdefault(tiers.COLLECTED, {})
    found.setdefault(tiers.name_of(item), set()).add(tiers.tier_of(item))


@pytest.hookimpl(trylast=True)  # of those that `-m` left
def pytest_collection_modifyitems(config, items):
    if (seconds := config.getoption("--slow-sample")) is not None:
        chosen = tiers.sample(items, seconds, tiers.changed_files())
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = [item for item in items if item in chosen]
