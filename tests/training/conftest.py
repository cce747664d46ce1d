"""The toy task as a fixture."""

import pytest
import torch

from training.toy import Toy, make_toy


@pytest.fixture(scope="session")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Toy:
    """The toy task with messages as wide as the model."""
    torch.set_num_threads(1)
    return make_toy(tmp_path_factory.mktemp("toy"))
