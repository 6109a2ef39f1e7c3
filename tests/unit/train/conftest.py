import pytest
import torch


@pytest.fixture
def one_thread():
    """Take from tiny tensors the wait of threads for each other, long on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
