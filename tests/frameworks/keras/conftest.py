"""The tests of Keras, which `make test-models` runs: elsewhere there is no Keras."""

from importlib.util import find_spec

import pytest

collect_ignore_glob = [] if find_spec("tensorflow") else ["*"]


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Give a test the same random numbers and layers the same weights, whichever tests ran before it."""
    import keras

    keras.utils.set_random_seed(0)
