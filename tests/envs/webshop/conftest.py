"""Our own shop and, where the real products are, theirs."""

from pathlib import Path

import pytest

from interlat.envs.webshop.shop import Shop, open_shop

REAL = Path(__file__).parents[4] / "shared/data/webshop"


@pytest.fixture(scope="session")
def real_folder() -> Path:
    """The folder of the 1,000 real products."""
    if not REAL.is_dir():
        pytest.skip("the real products are not here")
    return REAL


@pytest.fixture(scope="session")
def shop() -> Shop:
    """Our own shop."""
    return open_shop(None, 7)


@pytest.fixture(scope="session")
def real_shop(real_folder: Path) -> Shop:
    """The shop of the 1,000 real products."""
    return open_shop(real_folder, 7)
