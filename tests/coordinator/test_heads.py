from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch.nn import functional

from trinity.coordinator.heads import (
    BlockDiagonalHead,
    Head,
    LinearHead,
    LowRankHead,
    SparseHead,
    normalise_hidden,
    split_logits,
)
from trinity.errors import UserError


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


@pytest.mark.parametrize(
    ("head", "count"),
    [
        (LinearHead, 10_240),
        (LowRankHead, 20_680),
        (partial(LowRankHead, rank=14), 14_476),
        (SparseHead, 11_266),
        (BlockDiagonalHead, 5_120),
        (partial(BlockDiagonalHead, blocks=None), 1_024),
    ],
)
def test_heads_have_the_papers_parameter_counts(head: Callable[..., Head], count: int) -> None:
    assert sum(p.numel() for p in head(1024, agents=7).parameters()) == count


HEADS = [LinearHead, LowRankHead, SparseHead, BlockDiagonalHead, partial(BlockDiagonalHead, blocks=None)]


@pytest.mark.parametrize("make", HEADS)
def test_every_untrained_head_is_uniform_and_learns_from_gradients(make: Callable[..., Head]) -> None:
    head = make(16, agents=3)
    hidden = random(40, 16)
    assert torch.equal(head(hidden), torch.zeros(40, 6))
    wanted = functional.one_hot((hidden[:, 0] > 0).long(), 6).argmax(dim=1)
    optimizer = torch.optim.Adam(head.parameters(), lr=0.05)
    for step in range(150):
        head.train().anneal(step / 150, step)
        optimizer.zero_grad()
        functional.cross_entropy(head(hidden), wanted).backward()
        optimizer.step()
    head.eval()
    right = head(hidden).argmax(dim=1) == wanted
    assert right.float().mean() > 0.8  # half by chance; blocks of their own can't do much better


@pytest.mark.parametrize("make", HEADS)
def test_every_head_takes_a_candidates_parameters(make: Callable[..., Head]) -> None:
    head, hidden = make(16, agents=3), random(16)
    moved = {name: p.detach() + 0.3 * random(*p.shape) for name, p in head.named_parameters()}
    logits = torch.func.functional_call(head, moved, (hidden,))
    assert logits.shape == (6,)
    assert not torch.equal(logits, torch.zeros(6))


def test_the_low_rank_head_is_its_formula_less_its_start() -> None:
    head, hidden = LowRankHead(8, agents=2, rank=3), random(8)
    assert head.down.abs().max() <= (6 / 11) ** 0.5 and head.down.std() > 0.3
    assert head.up.abs().max() <= (18 / 8) ** 0.5 and head.up.std() > 0.5

    def formula(down: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        u = down @ hidden
        return up @ torch.where(u >= 0, u, 0.1 * (u.exp() - 1))

    start = formula(head.down.detach(), head.up.detach())
    head.down.data += 0.5
    head.up.data -= 0.25
    torch.testing.assert_close(head(hidden), formula(head.down, head.up) - start)


def test_the_sparse_head_selects_the_highest_scores() -> None:
    head = SparseHead(8, agents=1).eval()
    head.scores.data = torch.tensor([0.1, 0.9, 0.3, 0.8, 0.2, 0.0, 0.7, 0.4])
    assert head.selection().tolist() == [0, 1, 0, 1, 0, 0, 1, 1]  # a density of one half
    head.sparsity.data.fill_(1.0)  # 1 - sigmoid(1) = 0.27: two of eight
    assert head.selection().tolist() == [0, 1, 0, 1, 0, 0, 0, 0]
    head.sparsity.data.fill_(50.0)
    assert head.selection().sum() == 1
    weight = random(4, 8)
    head.weight.data = weight
    torch.testing.assert_close(head(torch.ones(8)), weight[:, 1])


def test_the_sparse_heads_training_is_soft_noisy_by_step_and_cools_down() -> None:
    head = SparseHead(8, agents=1).train()
    head.scores.data = 3 * random(8)
    head.anneal(0.0, step=0)
    assert head.temperature.item() == pytest.approx(20.0)
    hot = head.selection()
    assert hot.sum().item() == pytest.approx(4.0)
    assert torch.equal(hot, head.selection())
    head.anneal(0.0, step=1)
    assert not torch.equal(hot, head.selection())
    head.anneal(1.0, step=0)
    assert head.temperature.item() == pytest.approx(1.0)
    assert head.selection().max() > 2 * hot.max()


def test_gradients_pass_the_hard_selection() -> None:
    head = SparseHead(8, agents=1).eval()
    head.weight.data = random(4, 8)
    head(random(8)).sum().backward()
    assert (head.scores.grad != 0).all()
    assert head.sparsity.grad != 0


def test_blocks_read_stretches_of_their_own() -> None:
    halves = BlockDiagonalHead(9, agents=2)  # 3 and 2 outputs, ⌊3 · 9 / 5⌋ = 5 and 4 dimensions
    assert [tuple(block.shape) for block in halves.blocks] == [(3, 5), (2, 4)]
    single = BlockDiagonalHead(9, agents=1, blocks=None)
    assert [tuple(block.shape) for block in single.blocks] == [(1, 3), (1, 2), (1, 2), (1, 2)]
    for head in (halves, single):
        for block in head.blocks:
            block.data.fill_(1.0)
        hidden = torch.arange(9.0)
        by_hand = [part.sum().item() for part in torch.split(hidden, head.stretches)]
        rows = [len(block) for block in head.blocks]
        assert head(hidden).tolist() == [x for x, n in zip(by_hand, rows, strict=True) for _ in range(n)]


@pytest.mark.parametrize("blocks", [0, -1, 4, 17])
def test_blocks_that_can_not_be_are_refused(blocks: int) -> None:
    with pytest.raises(UserError, match=f"blocks is {blocks}, but 6 outputs"):
        BlockDiagonalHead(16, agents=3, blocks=blocks)
