import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trinity.coordinator.heads import LinearHead
from trinity.coordinator.parameters import Block, ParameterLayout
from trinity.errors import UserError


def layout_of(hidden_size: int = 1024, n_scales: int = 7168) -> ParameterLayout:
    head = LinearHead(hidden_size, agents=3)
    tensors = {"head.weight": head.weight.detach(), "svf": torch.ones(n_scales)}
    return ParameterLayout.of(tensors, {"head.weight": 6.0})


def test_s3_qwen3_0_6b_has_13312_parameters() -> None:
    layout = layout_of()
    assert layout.n == 13_312
    assert layout.describe() == "theta: n = 13,312 = head.weight 6,144 + svf 7,168"


@given(
    shapes=st.lists(st.lists(st.integers(1, 5), min_size=1, max_size=3).map(tuple), min_size=1, max_size=4),
    seed=st.integers(0, 2**31),
)
@settings(max_examples=30, deadline=None)
def test_s3_pack_and_unpack_are_inverse(shapes: list[tuple[int, ...]], seed: int) -> None:
    blocks = tuple(Block(f"block{i}", shape) for i, shape in enumerate(shapes))
    layout = ParameterLayout(blocks)
    theta = torch.randn(layout.n, generator=torch.Generator().manual_seed(seed))
    tensors = layout.unpack(theta)
    assert [tuple(t.shape) for t in tensors.values()] == shapes
    assert torch.equal(layout.pack(tensors), theta)
    again = layout.unpack(layout.pack(tensors))
    assert all(torch.equal(again[name], tensor) for name, tensor in tensors.items())


def test_s3_blocks_lie_in_their_order() -> None:
    layout = ParameterLayout((Block("head.weight", (2, 2)), Block("svf", (3,))))
    tensors = layout.unpack(torch.arange(7.0))
    assert tensors["head.weight"].tolist() == [[0, 1], [2, 3]]
    assert tensors["svf"].tolist() == [4, 5, 6]


def test_unpack_gives_views_that_carry_gradients() -> None:
    layout = layout_of(4, 5)
    theta = torch.zeros(layout.n)
    layout.unpack(theta)["svf"].fill_(2.0)
    assert theta.tolist() == [0.0] * 24 + [2.0] * 5
    theta.requires_grad_()
    (layout.unpack(theta)["head.weight"].sum() * 3).backward()
    assert theta.grad is not None
    assert theta.grad.tolist() == [3.0] * 24 + [0.0] * 5


def test_each_coordinate_has_its_blocks_scale() -> None:
    assert layout_of(4, 5).scales().tolist() == [6.0] * 24 + [1.0] * 5


def test_theta_of_another_length_is_refused() -> None:
    with pytest.raises(UserError, match=r"13311 numbers.*needs 13312"):
        layout_of().unpack(torch.zeros(13_311))


def test_a_tensor_of_another_shape_is_refused() -> None:
    tensors = {"head.weight": torch.zeros(7, 4), "svf": torch.ones(5)}
    with pytest.raises(UserError, match=r"head\.weight.*\(7, 4\).*\(6, 4\)"):
        layout_of(4, 5).pack(tensors)
