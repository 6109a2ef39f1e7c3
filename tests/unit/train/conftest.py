import pytest
import torch
from train_samples import build_job, write_shards


@pytest.fixture
def one_thread():
    """Take from tiny tensors the wait of threads for each other, long on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def job(tmp_path):
    """Return a tiny job whose shards are there."""
    job = build_job(tmp_path)
    write_shards(job)
    return job
