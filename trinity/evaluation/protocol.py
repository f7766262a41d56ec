"""The final comparison: a trained coordinator against its baselines, all on the same held-out tasks."""

import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from trinity import keyed
from trinity.episode.policy import Policy, Selection
from trinity.episode.roles import Role
from trinity.episode.rollout import Draw, EpisodeSettings
from trinity.episode.scheduler import Failure, Graded, Job, most_common
from trinity.errors import UserError
from trinity.evaluation.baselines import (
    RecordingPolicy,
    Schedule,
    SchedulePolicy,
    ShuffledPolicy,
    UniformPolicy,
    best_schedule,
)
from trinity.evaluation.statistics import Rewards
from trinity.pool.base import DecodeParameters, Pool
from trinity.tasks.task import Task


class Runner(Protocol):
    """What the protocol needs of the module: trajectories of any policy."""

    def run(
        self,
        policy: Policy,
        jobs: Sequence[Job[Task]],
        selection: Selection,
        episode: EpisodeSettings | None = None,
    ) -> list[Graded | Failure]:
        """See `CoordinatorModule.run`."""


@dataclass(frozen=True)
class EvaluationSettings:
    """What the final table holds beside the standard rows.

    Args:
        whole_budget: also each single agent with as many tokens as a whole trajectory may take, in one call
            of K times the limit of a turn: else a comparison favours whoever is asked K times. Costs a long
            call for each held-out task and agent. With K = 1 there is nothing to add.
        controls: also a state-blind policy (the best fixed schedule, searched on training tasks) and the
            trained coordinator with its hidden states shuffled across tasks. Costs thousands of calls: for
            pools that cost nothing.
        control_tasks: on how many training tasks the schedule is searched.
        measure_disagreement: before training, measure on the training tasks how often the two best single
            agents differ, for the smallest detectable effect. Costs a call for each training task and agent.
    """

    whole_budget: bool = True
    controls: bool = False
    control_tasks: int = 60
    measure_disagreement: bool = False


@dataclass(frozen=True)
class WholeBudget:
    """A single agent that had the tokens of a whole trajectory, `turns` x `tokens`, for its one answer.

    `rewards` is empty where no such answer could be had.
    """

    agent: str
    turns: int
    tokens: int
    rewards: Rewards

    @property
    def name(self) -> str:
        """Tells it from the agent with the tokens of one turn."""
        return f"{self.agent}, {self.turns} x {self.tokens:,} tokens"


@dataclass(frozen=True)
class Comparison:
    """Rewards by task id of every policy, on the tasks that it could be measured on.

    `single` holds each agent alone with the tokens of one turn, `whole_budget` with those of all turns. What
    is said of the best single agent, also by domain or by question, is said of both together: of whichever
    row is higher.
    """

    initial: Rewards
    trained: Rewards
    single: dict[str, Rewards]
    random: Rewards
    state_blind: Rewards | None = None
    schedule: Schedule | None = None
    shuffled: Rewards | None = None
    whole_budget: Sequence[WholeBudget] = ()

    @property
    def singles(self) -> dict[str, Rewards]:
        """Every single agent's rows, by name."""
        return self.single | {whole.name: whole.rewards for whole in self.whole_budget if whole.rewards}

    @property
    def per_question_best(self) -> Rewards:
        """1 where any single agent is right: the ceiling of routing one call, lucky hits counted in."""
        tasks = set[str]().union(*self.singles.values()).intersection(*self.singles.values())
        return {task: max(rewards[task] for rewards in self.singles.values()) for task in tasks}

    @property
    def best_single(self) -> str | None:
        """The name of the single row with the highest mean on these tasks, chosen with hindsight."""
        return max(self.singles, key=lambda name: _mean(self.singles[name]), default=None)

    def best_by_domain(self, tasks: Sequence[Task]) -> tuple[Rewards, dict[str, str]]:
        """The best single row of each domain, chosen with hindsight, and which one it is."""
        rewards: dict[str, int] = {}
        chosen: dict[str, str] = {}
        for domain in sorted({task.domain for task in tasks}):
            inside = {task.id for task in tasks if task.domain == domain}
            restricted = {
                name: {t: r for t, r in all_.items() if t in inside} for name, all_ in self.singles.items()
            }
            measured = {name: found for name, found in restricted.items() if found}
            if not measured:
                continue
            name = max(measured, key=lambda n: _mean(measured[n]))
            chosen[domain] = name
            rewards |= measured[name]
        return rewards, chosen


def _mean(rewards: Rewards) -> float:
    return sum(rewards.values()) / max(len(rewards), 1)


class Evaluation:
    """Runs policies on tasks, one trajectory each.

    Args:
        runner: runs them.
        pool: the agents.
        episode: the rules of a trajectory.
        seed: of the sampled policies.
    """

    def __init__(self, runner: Runner, pool: Pool, episode: EpisodeSettings, seed: int) -> None:
        self._runner = runner
        self._pool = pool
        self._agents = pool.agents
        self._episode = episode
        self._seed = seed

    def rewards(
        self,
        policy: Policy,
        tasks: Sequence[Task],
        name: str,
        *,
        selection: Selection = "argmax",
        stage: str = "evaluation",
        episode: EpisodeSettings | None = None,
    ) -> Rewards:
        """Reward by task id; tasks lost to infrastructure failures are left out, with a warning.

        `name` is what the journal calls the policy.
        """
        jobs = [Job(task, 0, Draw(self._seed, stage, 0), name) for task in tasks]
        results = self._runner.run(policy, jobs, selection, episode)
        rewards = {result.task_id: result.reward for result in results if isinstance(result, Graded)}
        refused = Counter(
            f"{self._agents[turn.agent]}: {turn.completion.refusal}"
            for result in results
            if isinstance(result, Graded)
            for turn in result.trajectory.turns
            if turn.completion.refusal
        )
        if refused:
            causes = ", ".join(f"{what} ({n}x)" for what, n in refused.most_common())
            warnings.warn(
                f"{refused.total()} turns of the evaluation of {name} have no proper answer ({causes}); they "
                "count as answers.",
                stacklevel=2,
            )
        failed = [result for result in results if isinstance(result, Failure)]
        if failed:
            warnings.warn(
                f"{len(failed)} of {len(tasks)} evaluation tasks could not be finished "
                f"({most_common(failed)}) and are left out.",
                stacklevel=2,
            )
        return rewards

    def single(self, agent: int, tasks: Sequence[Task]) -> Rewards:
        """One agent alone: one call in the Worker role."""
        return self._alone(agent, tasks, self._episode.decode, f"single:{self._agents[agent]}")

    def whole_budget(self, agent: int, tasks: Sequence[Task]) -> WholeBudget:
        """One agent alone, which has the tokens of all turns for its one answer.

        The limit is the agent's own where its model has one. An agent that is refused so many tokens, or of
        which a cache that is replayed holds no such answers, has no rewards; a warning says why.
        """
        turns, decode = self._episode.max_turns, self._episode.decode
        tokens = self._pool.identity(agent, decode).get("max_tokens", decode.max_tokens * decode.turns)
        whole = WholeBudget(self._agents[agent], turns, int(tokens), {})
        try:
            rewards = self._alone(
                agent, tasks, replace(decode, turns=turns * decode.turns), f"single:{whole.name}"
            )
        except UserError as error:
            warnings.warn(
                f"{self._agents[agent]} could not be asked for an answer with the tokens of {turns} turns, "
                f"so that the final table lacks this row: {error}",
                stacklevel=2,
            )
            return whole
        return replace(whole, rewards=rewards)

    def whole_budgets(self, tasks: Sequence[Task]) -> list[WholeBudget]:
        """Each agent on offer alone, with the tokens of all turns; none where one turn is all there is."""
        if self._episode.max_turns == 1:
            return []
        return [self.whole_budget(place, tasks) for place in self._episode.places(len(self._agents))]

    def _alone(self, agent: int, tasks: Sequence[Task], decode: DecodeParameters, name: str) -> Rewards:
        policy = SchedulePolicy(len(self._agents), ((agent, Role.WORKER),))
        return self.rewards(policy, tasks, name, episode=replace(self._episode, max_turns=1, decode=decode))

    def singles(self, tasks: Sequence[Task]) -> dict[str, Rewards]:
        """Each agent on offer alone, by name; an agent that answered nothing is left out."""
        places = self._episode.places(len(self._agents))
        found = {self._agents[place]: self.single(place, tasks) for place in places}
        return {name: rewards for name, rewards in found.items() if rewards}

    def disagreement(self, tasks: Sequence[Task]) -> float:
        """On what share of the tasks the two best single agents differ in outcome.

        Raises UserError where fewer than two agents answered.
        """
        singles = sorted(self.singles(tasks).values(), key=_mean)
        if len(singles) < 2:
            raise UserError(
                f"Only {len(singles)} of the agents {list(self._agents)} answered any of the {len(tasks)} "
                "training tasks, so that their disagreement can't be measured; mend the cause that the "
                "warnings name."
            )
        first, second = singles[-2:]
        shared = first.keys() & second.keys()
        return sum(first[task] != second[task] for task in shared) / max(len(shared), 1)

    def random(self, tasks: Sequence[Task]) -> Rewards:
        """Agent and role uniformly at random in each turn."""
        policy = UniformPolicy(len(self._agents))
        return self.rewards(policy, tasks, "random", selection="sample", stage="random")

    def shuffled(self, policy: Policy, tasks: Sequence[Task], *, selection: Selection = "argmax") -> Rewards:
        """A policy that decides each task from the states of another one (see `ShuffledPolicy`)."""
        recorder = RecordingPolicy(policy)
        self.rewards(recorder, tasks, "trained", selection=selection)
        ids = [task.id for task in tasks if task.id in recorder.seen]
        order = keyed.generator("shuffle", self._seed).permutation(len(ids))
        cycle = [ids[int(i)] for i in order]
        # A cycle leaves no task with its own states.
        donors = dict(zip(cycle, [*cycle[1:], cycle[0]], strict=True))
        policy = ShuffledPolicy(recorder.seen, donors)
        return self.rewards(policy, [t for t in tasks if t.id in donors], "shuffled", selection=selection)

    def find_schedule(self, tasks: Sequence[Task]) -> Schedule:
        """The best fixed schedule found on these tasks."""
        roles = [role for role in Role if role.name.lower() in self._episode.roles]

        def value(schedule: Schedule) -> float:
            return _mean(self.rewards(SchedulePolicy(len(self._agents), schedule), tasks, "schedule search"))

        places = self._episode.places(len(self._agents))
        return best_schedule(value, places, roles, self._episode.max_turns)

    def schedule(self, schedule: Schedule, tasks: Sequence[Task]) -> Rewards:
        """A fixed schedule."""
        return self.rewards(SchedulePolicy(len(self._agents), schedule), tasks, "schedule")


Loader = Callable[[], Policy]


def compare(
    evaluation: Evaluation,
    trained: Loader,
    initial: Loader,
    tasks: Sequence[Task],
    search_tasks: Sequence[Task],
    settings: EvaluationSettings,
    selection: Selection,
) -> Comparison:
    """Play every row of the final table.

    Args:
        evaluation: runs the policies.
        trained, initial: make the coordinator decide by that theta and return it as a policy. The initial
            policy is always sampled: it has no preferences to take the argmax of.
        tasks: the held-out tasks.
        search_tasks: training tasks for the state-blind control.
        settings: which extra rows.
        selection: how the trained coordinator chooses.
    """
    state_blind = schedule = shuffled = None
    single = evaluation.singles(tasks)
    random = evaluation.random(tasks)
    initial_rewards = evaluation.rewards(initial(), tasks, "initial", selection="sample", stage="initial")
    trained_rewards = evaluation.rewards(trained(), tasks, "trained", selection=selection)
    if not trained_rewards:
        raise UserError(
            f"The trained coordinator could finish none of the {len(tasks)} held-out tasks; mend the cause "
            "that the warning names and evaluate again with --ckpt_path."
        )
    if settings.controls:
        schedule = evaluation.find_schedule(search_tasks[: settings.control_tasks])
        state_blind = evaluation.schedule(schedule, tasks)
        shuffled = evaluation.shuffled(trained(), tasks, selection=selection)
    # Last, since it is the longest call that a model is ever asked for, and may be refused.
    whole = evaluation.whole_budgets(tasks) if settings.whole_budget else []
    return Comparison(
        initial_rewards, trained_rewards, single, random, state_blind, schedule, shuffled, whole
    )
