"""Player: trajectories of any policy, on the run's pool and graders, within its budget."""

import asyncio
import uuid
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from typing import Any

from trinity.episode.calls import Bill, Calls
from trinity.episode.journal import Journal
from trinity.episode.policy import Policy, Selection
from trinity.episode.records import from_record, to_record
from trinity.episode.rollout import Clip, EpisodeSettings, Rollout
from trinity.episode.scheduler import Failure, Graded, Job, run_jobs
from trinity.errors import UserError
from trinity.pool.base import DecodeParameters, Pool
from trinity.pool.budget import Budget, Meter, Spent
from trinity.pool.cache import CacheSettings, CompletionCache
from trinity.pool.reliable import ReliablePool
from trinity.ranks import Ranks
from trinity.rewards.grade import Grade
from trinity.rewards.rewards import Rewards
from trinity.tasks.task import Task

_JUDGE_DECODE = DecodeParameters(max_tokens=2048)


class Player:
    """Plays trajectories and grades them.

    Args:
        pool: the LLMs.
        episode: the rules of a trajectory.
        rewards: grades answers.
        cache: where answers are kept; None keeps none.
        budget: what may be spent.
        concurrency: calls in flight at once, all models together.
    """

    def __init__(
        self,
        pool: Pool,
        episode: EpisodeSettings,
        rewards: Rewards,
        cache: CacheSettings | None,
        budget: Budget,
        concurrency: int,
    ) -> None:
        if concurrency < 1:
            raise UserError(f"model.concurrency is {concurrency}, but must allow at least 1 call; raise it.")
        self.pool = pool
        self.episode = episode
        self.journal: Journal | None = None
        self._rewards = rewards
        self._cache_settings = cache
        self._concurrency = concurrency
        self._run_id = uuid.uuid4().hex
        self._cache: CompletionCache | None = None
        self._meter = Meter(budget)
        self._calls_pool: ReliablePool | None = None
        self._runner = asyncio.Runner()

    def check(self) -> None:
        """Raises UserError for a pool that can't be used, and for a judge or an agent that is none of it."""
        self._open().check()
        if self._rewards.judge is not None and self._rewards.judge not in self.pool.agents:
            raise UserError(
                f"rewards.judge is {self._rewards.judge!r}, but the pool holds "
                f"{', '.join(self.pool.agents)}; name one of them, or leave it out."
            )
        places = self.episode.agents or ()
        if any(place >= len(self.pool.agents) for place in places):
            raise UserError(
                f"episode.agents is {list(places)}, but the pool's {len(self.pool.agents)} agents have the "
                f"places 0 to {len(self.pool.agents) - 1}."
            )

    def check_tasks(self, tasks: Sequence[Task]) -> None:
        """Raises UserError for a task that no answer could be graded on."""
        for task in tasks:
            self._rewards.check(task)

    def share(self) -> None:
        """Divide budget and paces among the processes of a distributed run; all of them call it."""
        ranks = Ranks.here()
        if ranks.count > 1:
            self._run_id = str(ranks.gather(self._run_id)[0])
        self._open().share_with(ranks.count)
        if self._cache is not None:
            self._cache.use_run(self._run_id)

    def count(self, trajectories: int) -> None:
        """Count trajectories of the training before they are played.

        Raises BudgetReachedError where the budget allows no more.
        """
        self._meter.count_trajectories(trajectories // Ranks.here().count)

    def play_together(
        self,
        policy: Policy,
        jobs: Sequence[Job[Task]],
        selection: Selection,
        clip: Clip,
        episode: EpisodeSettings | None = None,
    ) -> list[Graded | Failure]:
        """Trajectories whose results all processes of a distributed run need: they share the jobs, and each
        has to call this.

        Raises UserError on every process where one of them does.
        """
        ranks = Ranks.here()
        if ranks.count == 1:
            return self.play(policy, jobs, selection, clip, episode)
        mine = ranks.share([job.candidate for job in jobs])
        try:
            played = self.play(policy, [jobs[i] for i in mine], selection, clip, episode, share=ranks.count)
        except UserError as error:
            return self._gathered(ranks, len(jobs), {}, str(error))
        return self._gathered(ranks, len(jobs), dict(zip(mine, played, strict=True)), None)

    @staticmethod
    def _gathered(
        ranks: Ranks, jobs: int, played: dict[int, Graded | Failure], error: str | None
    ) -> list[Graded | Failure]:
        """All ranks' results in the order of the jobs. Raises UserError where any rank met one."""
        records = [[i, to_record(result)] for i, result in played.items()]
        everything = ranks.gather({"error": error, "records": records})
        for found in everything:
            if found["error"] is not None:
                raise UserError(found["error"])
        by_job = {i: from_record(record) for found in everything for i, record in found["records"]}
        return [by_job[i] for i in range(jobs)]

    def play(
        self,
        policy: Policy,
        jobs: Sequence[Job[Task]],
        selection: Selection,
        clip: Clip,
        episode: EpisodeSettings | None = None,
        *,
        share: int = 1,
    ) -> list[Graded | Failure]:
        """Trajectories of any policy, by this process alone.

        `episode` stands in place of the run's rules; `share` processes at work divide the limits on calls.
        """
        calls = Calls(self._open(), self._concurrency, share)
        judge = None if self._rewards.judge is None else list(self.pool.agents).index(self._rewards.judge)

        async def grade(task: Task, answer: str | None, bill: Bill) -> Grade:
            ask = None if judge is None else calls.asker(judge, _JUDGE_DECODE, bill)
            return await self._rewards.grade(task, answer, ask)

        rollout = Rollout(policy, calls, episode or self.episode, clip, selection)
        return self._runner.run(run_jobs(rollout, jobs, grade, self._finished))

    def _finished(self, job: Job[Task], result: Graded | Failure) -> None:
        if self.journal is not None:
            self.journal.add(job.draw, job.policy, result)

    def _open(self) -> ReliablePool:
        """The pool behind its cache, budget and retries; made once, when it is first needed."""
        if self._calls_pool is None:
            settings = self._cache_settings
            replay = settings is not None and settings.mode == "replay"
            if settings is not None:
                self._cache = CompletionCache(settings.path, self._run_id, read_only=replay)
            self._calls_pool = ReliablePool(self.pool, self._cache, replay=replay, meter=self._meter)
        return self._calls_pool

    def spent(self) -> dict[str, Any]:
        """What the run has spent so far, in plain values, for `go_on`."""
        return {"run": self._run_id, "amounts": asdict(self._meter.total)}

    def go_on(self, spent: dict[str, Any]) -> Spent:
        """The budget holds for the whole run: what was spent after the checkpoint is known from the cache.

        Returns that part of it.
        """
        self._run_id, saved = spent["run"], Spent(**spent["amounts"])
        known = saved
        self._open()
        if self._cache is not None:
            self._cache.use_run(self._run_id)
            found = self._cache.spent(self._run_id)
            known = saved.at_least(Spent(found.usd, found.calls, found.tokens))
        self._meter.total = known
        return known + -saved

    def close(self) -> None:
        """Let go of connections, files, processes and threads: each, whatever happens to the others.

        An interrupt ends what it meets (say, the wait for answers under way), and the rest is closed all the
        same.
        """
        with ExitStack() as stack:  # the last one first
            stack.callback(self._rewards.close)
            if self.journal is not None:
                stack.callback(self.journal.close)
            if self._cache is not None:
                stack.callback(self._cache.close)
            stack.callback(self._runner.close)
            stack.callback(lambda: self._runner.run((self._calls_pool or self.pool).aclose()))
