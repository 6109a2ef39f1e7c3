"""What is read of a GPU, with NVML's functions played by a fake."""

from types import SimpleNamespace

import pytest

from serve_app.gpu_meter import open_gpu_meter


class FakeNvml:
    """Has one GPU, index 1, that is 40 % busy until it is lost."""

    class NVMLError(Exception):
        pass

    def __init__(self):
        self.is_lost = False
        self.is_started = False

    def nvmlInit(self):
        if self.is_lost:
            raise self.NVMLError("Driver Not Loaded")
        self.is_started = True

    def nvmlDeviceGetHandleByIndex(self, index):
        if index != 1:
            raise self.NVMLError("Invalid Argument")
        return "the device"

    def nvmlDeviceGetHandleByUUID(self, uuid):
        assert uuid == "GPU-1"
        return "the device"

    def nvmlDeviceGetUtilizationRates(self, device):
        assert device == "the device"
        if self.is_lost:
            raise self.NVMLError("GPU is lost")
        return SimpleNamespace(gpu=40, memory=7)


@pytest.mark.parametrize("gpu_id", [1, "1", "GPU-1"])
def test_utilisation_is_a_share_of_one(gpu_id):
    nvml = FakeNvml()

    meter = open_gpu_meter([gpu_id, 5], nvml=nvml)

    assert nvml.is_started
    assert meter.read_utilisation() == 0.4


def test_without_a_gpu_there_is_no_meter_and_nvml_is_not_asked():
    nvml = FakeNvml()

    assert open_gpu_meter([], nvml=nvml) is None
    assert not nvml.is_started


def test_a_gpu_that_nvml_does_not_know_is_named_once_and_has_no_meter(caplog):
    assert open_gpu_meter([3], nvml=FakeNvml()) is None
    assert "GPU utilisation of 3 is not reported: Invalid Argument" in caplog.text


def test_a_gpu_that_is_lost_has_no_figure():
    nvml = FakeNvml()
    meter = open_gpu_meter([1], nvml=nvml)
    nvml.is_lost = True

    assert meter.read_utilisation() is None
