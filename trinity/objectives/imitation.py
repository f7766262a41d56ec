"""Supervised fine-tuning of the head on oracle labels: which single agent solves the task."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.optim import Optimizer

from trinity.episode.roles import Role
from trinity.episode.scheduler import Failure, Graded
from trinity.objectives.base import Arena, Objective, Plan, Update, require_gradients
from trinity.objectives.ledger import Ledger, account, settle
from trinity.tasks.task import Task

_SAMPLES = 3  # the paper's three seeds
_MANY = 8


class Imitation(Objective):
    """One step: a step along the gradient of the cross-entropy on a minibatch of labelled queries.

    **Labels.** Each agent answers each training task alone, as a Worker: three times, which are three
    samples, where the LLMs answer at a temperature above 0, and once at temperature 0, where three answers
    would be one answer three times. The agents that solved it most often share the target's mass equally. A
    task that nobody solved has no label and is left out. **Role targets.** The labels come from Workers, so
    the target role of a query is the Worker, with certainty; later turns have no labels: labelling them would
    mean playing every continuation, 7^4 x 3^5 times as many calls in the paper's setting (appendix A.2.2).
    What this policy does after its first turn is what the head makes of states that it was not trained on.

    A task is labelled when it is first drawn, so labels are paid for only where they are used, and they are
    kept in the checkpoint. Only the head is trained; the queries' hidden states, those of the unadapted
    model, are computed once.

    Args:
        max_dropped_share: a step that loses more of its labelling calls to infrastructure failures stops the
            run. A task whose labelling failed is labelled when it is next drawn.
    """

    def __init__(self, max_dropped_share: float = 0.25) -> None:
        self.max_dropped_share = max_dropped_share
        self._targets: dict[str, list[float]] = {}
        self._features: dict[str, Tensor] = {}

    single_turn = True

    def planned(self, plan: Plan) -> int:
        """See `Objective.planned`: each task that is drawn is labelled once."""
        return min(plan.steps * plan.minibatch, plan.training_tasks) * plan.agents * samples(plan.temperature)

    def step(self, arena: Arena, optimizer: Optimizer, tasks: Sequence[Task], generation: int) -> Update:
        """See `Objective.step`."""
        require_gradients(self, optimizer)
        ledger = self._label([task for task in tasks if task.id not in self._targets], arena, generation)
        labelled = [task for task in tasks if self._targets.get(task.id)]
        metrics = {
            "imitation/samples": float(samples(arena.episode.decode.temperature)),
            "imitation/labelled": float(sum(bool(target) for target in self._targets.values())),
            "imitation/unsolved": float(sum(not target for target in self._targets.values())),
        }
        if labelled:
            metrics |= self._learn(labelled, arena, optimizer)
        else:  # a step is a step, or the run would never end
            optimizer.step()
        return Update(generation, ledger, metrics)

    def _label(self, tasks: Sequence[Task], arena: Arena, generation: int) -> Ledger:
        if not tasks:
            return Ledger([], [], Counter())
        wanted = samples(arena.episode.decode.temperature)
        results = arena.play_agents(tasks, stage="label", samples=wanted, generation=generation)
        failed = {result.task_id for result in results if isinstance(result, Failure)}
        solved: dict[str, Counter[int]] = {task.id: Counter() for task in tasks if task.id not in failed}
        for result in results:
            if isinstance(result, Graded) and result.task_id in solved:
                solved[result.task_id][result.candidate] += result.reward
        self._targets |= {task: target(counts, arena.agents) for task, counts in solved.items()}
        # Of a few tasks one may well be a large share.
        return account(results, self.max_dropped_share) if len(tasks) >= _MANY else settle(results)

    def _learn(self, tasks: Sequence[Task], arena: Arena, optimizer: Optimizer) -> dict[str, float]:
        missing = [task for task in tasks if task.id not in self._features]
        if missing:
            rows = arena.features(missing)
            self._features |= {task.id: row for task, row in zip(missing, rows, strict=True)}
        device = next(arena.head.parameters()).device
        hidden = torch.stack([self._features[task.id] for task in tasks]).to(device)
        wanted = torch.tensor([self._targets[task.id] for task in tasks], device=device)
        arena.head.train()
        logits = arena.head(hidden)
        arena.head.eval()
        agents, roles = logits[:, : arena.agents], logits[:, arena.agents :]
        workers = torch.full((len(tasks),), int(Role.WORKER), device=device)
        loss = functional.cross_entropy(agents, wanted) + functional.cross_entropy(roles, workers)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        hit = wanted.gather(1, agents.argmax(dim=1, keepdim=True)) > 0
        return {"imitation/loss": float(loss.detach()), "imitation/accuracy": float(hit.float().mean())}

    def state(self) -> dict[str, Any]:
        """The labels: they were paid for."""
        return {"targets": {task: list(target) for task, target in self._targets.items()}}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take up a checkpoint's labels."""
        self._targets = {task: list(target) for task, target in state.get("targets", {}).items()}


def samples(temperature: float) -> int:
    """How many answers of each agent a label is made of: at temperature 0 all are the same one."""
    return _SAMPLES if temperature > 0 else 1


def target(solved: Mapping[int, int], agents: int) -> list[float]:
    """How often each agent solved a task -> the target distribution; empty where nobody did."""
    most = max(solved.values(), default=0)
    if most == 0:
        return []
    best = [agent for agent in range(agents) if solved.get(agent, 0) == most]
    return [1 / len(best) if agent in best else 0.0 for agent in range(agents)]
