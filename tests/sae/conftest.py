import pytest
import torch


@pytest.fixture(autouse=True, scope="package")
def _one_thread():
    """Tensors here are small: a second thread costs more than it brings, above all beside other tests."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
