import pytest
import torch

from trinity.coordinator.heads import LinearHead, normalise_hidden, split_logits


def random(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def test_the_untrained_linear_head_is_uniform() -> None:
    head = LinearHead(8, agents=4)
    assert [tuple(p.shape) for p in head.parameters()] == [(7, 8)]
    assert torch.equal(head(random(5, 8)), torch.zeros(5, 7))


def test_linear_head_is_the_product_with_its_weight() -> None:
    head = LinearHead(8, agents=2)
    weight, hidden = random(5, 8), random(3, 2, 8)
    head.weight.data.copy_(weight)
    torch.testing.assert_close(head(hidden), torch.einsum("...d,kd->...k", hidden, weight))


def test_a_candidates_parameters_replace_the_heads_own() -> None:
    head = LinearHead(8, agents=2)
    weight, hidden = random(5, 8), random(8)
    logits = torch.func.functional_call(head, {"weight": weight}, (hidden,))
    torch.testing.assert_close(logits, weight @ hidden)
    assert torch.equal(head.weight, torch.zeros(5, 8))


def test_agents_come_first_then_roles() -> None:
    agents, roles = split_logits(torch.arange(14.0).view(2, 7), agents=4)
    assert agents.tolist() == [[0, 1, 2, 3], [7, 8, 9, 10]]
    assert roles.tolist() == [[4, 5, 6], [11, 12, 13]]


@pytest.mark.parametrize(("kind", "norm"), [("rms", 8.0), ("l2", 1.0)])
def test_hidden_states_get_their_norm(kind: str, norm: float) -> None:
    hidden = random(5, 64) * torch.tensor([1e-3, 1.0, 1e4, 7.0, 0.1])[:, None]
    scaled = normalise_hidden(hidden, kind)  # type: ignore[arg-type]
    torch.testing.assert_close(scaled.norm(dim=-1), torch.full((5,), norm))
    torch.testing.assert_close(torch.cosine_similarity(scaled, hidden), torch.ones(5))


def test_none_leaves_hidden_states_alone() -> None:
    assert torch.equal(normalise_hidden(random(5, 64), "none"), random(5, 64))


@pytest.mark.parametrize("kind", ["rms", "l2", "none"])
def test_a_zero_hidden_state_stays_zero(kind: str) -> None:
    hidden = torch.zeros(3, 16, requires_grad=True)
    scaled = normalise_hidden(hidden, kind)  # type: ignore[arg-type]
    assert torch.equal(scaled, torch.zeros(3, 16))
    scaled.sum().backward()
    assert hidden.grad is not None and bool(hidden.grad.isfinite().all())


@pytest.mark.parametrize("kind", ["rms", "l2", "none"])
def test_normalised_hidden_states_are_float32(kind: str) -> None:
    assert normalise_hidden(random(4, 16).bfloat16(), kind).dtype == torch.float32  # type: ignore[arg-type]
