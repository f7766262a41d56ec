"""Matrix products with packed weights, and keys and values in chunks."""

import weakref

import pytest
import torch
from torch import Tensor

from trinity.coordinator.layers import DecoderLayer, Positions, multiplier, normaliser
from trinity.coordinator.slm import SLM


def noise(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape) + shape[0]))


@pytest.mark.parametrize("rows", [1, 5, 64])
def test_a_packed_matrix_gives_the_product(rows: int) -> None:
    weight, bias, x = noise(600, 512), noise(600), noise(rows, 512)
    for added in (None, bias):
        wanted = torch.nn.functional.linear(
            x.double(), weight.double(), None if added is None else added.double()
        )
        torch.testing.assert_close(multiplier(weight, added)(x), wanted.float(), atol=1e-3, rtol=1e-5)


def test_a_packed_matrix_is_differentiable_in_its_input() -> None:
    weight, x = noise(600, 512), noise(3, 512).requires_grad_()
    multiplier(weight, None)(x).sum().backward()
    torch.testing.assert_close(x.grad, weight.sum(0).expand(3, -1), atol=1e-3, rtol=1e-5)


def test_a_matrix_that_needs_gradients_gets_them() -> None:
    weight, x = noise(600, 512).requires_grad_(), noise(3, 512)
    multiplier(weight, None)(x).sum().backward()
    torch.testing.assert_close(weight.grad, x.sum(0).expand(600, -1))


def test_a_layer_in_chunks_is_the_layer_at_once(random_slm: SLM) -> None:
    layer = DecoderLayer(random_slm.decoder.layers[0])
    x = noise(12, random_slm.hidden_size)
    angle = torch.arange(12)[:, None, None] * torch.ones(1, 1, 16) / 7
    sign = torch.cat((-torch.ones(8), torch.ones(8)))
    positions = Positions(angle.cos(), angle.sin() * sign)
    whole, kept = layer.run(x, positions, [], layer.matrices)
    first, past = layer.run(x[:7], positions.stretch(0, 7), [], layer.matrices)
    second, own = layer.run(x[7:], positions.stretch(7, 12), [past], layer.matrices)
    torch.testing.assert_close(torch.cat((first, second)), whole)
    torch.testing.assert_close(torch.cat((past.keys, own.keys)), kept.keys)
    last, _ = layer.run(x[7:], positions.stretch(7, 12), [past], layer.matrices, last_only=True)
    torch.testing.assert_close(last, whole[-1:])
    alone = layer.keys_values(x[7:], positions.stretch(7, 12), layer.matrices)
    assert torch.equal(alone.keys, own.keys)
    assert torch.equal(alone.values, own.values)


def test_a_packed_matrix_can_let_go_of_the_plain_one() -> None:
    weight = noise(600, 512)
    gone = weakref.ref(weight)
    multiply = multiplier(weight, None, keep=False)
    wanted = torch.nn.functional.linear(noise(3, 512), weight)
    del weight
    assert gone() is None
    torch.testing.assert_close(multiply(noise(3, 512)), wanted, atol=1e-3, rtol=1e-5)


def test_the_normalisation_is_the_librarys(random_slm: SLM) -> None:
    norm = random_slm.decoder.layers[0].self_attn.q_norm
    for scale in (1e-4, 1.0, 1e3):
        x = scale * noise(7, 4, 16)
        torch.testing.assert_close(normaliser(norm)(x), norm(x), atol=0, rtol=1e-5)
        assert normaliser(norm)(x.bfloat16()).dtype == torch.bfloat16
    assert not normaliser(norm)(torch.zeros(2, 16)).any()


def test_the_normalisation_is_differentiable(random_slm: SLM) -> None:
    norm = random_slm.decoder.layers[0].input_layernorm
    gradients = []
    for function in (norm, normaliser(norm)):
        x = noise(3, 64).requires_grad_()
        function(x).square().sum().backward()
        gradients.append(x.grad)
    torch.testing.assert_close(gradients[0], gradients[1], atol=1e-5, rtol=1e-4)


def test_another_normalisation_is_left_as_it_is() -> None:
    other = torch.nn.LayerNorm(4)
    assert normaliser(other) is other
