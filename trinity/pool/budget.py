"""What a run may spend, checked before a call leaves."""

import asyncio
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

from trinity.errors import UserError
from trinity.pool.base import Paid

_LEAST = 1e-9  # dollars


@dataclass(frozen=True)
class Budget:
    """The most that a run may spend, resumed parts included; None is unlimited.

    Args:
        usd: dollars. A call leaves only if what it may cost at most still fits: by the model's price and
            token limit where the pool gives a price, else by the dearest call of the model so far, of which
            the first goes alone. Refused where some model's calls can't be told in dollars.
        calls: requests that were answered, also by what could not be used; answers from the cache do not
            count.
        tokens: prompt and completion tokens of these.
        trajectories: of training.
    """

    usd: float | None = None
    calls: int | None = None
    tokens: int | None = None
    trajectories: int | None = None

    def __post_init__(self) -> None:
        for name, limit in asdict(self).items():
            if limit is not None and limit <= 0:
                raise UserError(f"budget.{name} is {limit}, but must be above 0; raise it, or leave it out.")


class BudgetReachedError(UserError):
    """The run ends in order, at its last complete generation."""


@dataclass
class Spent:
    """What has been spent."""

    usd: float = 0.0
    calls: int = 0
    tokens: int = 0
    trajectories: int = 0

    def __add__(self, other: "Spent") -> "Spent":
        return Spent(
            self.usd + other.usd,
            self.calls + other.calls,
            self.tokens + other.tokens,
            self.trajectories + other.trajectories,
        )

    def __neg__(self) -> "Spent":
        return Spent(-self.usd, -self.calls, -self.tokens, -self.trajectories)

    def __mul__(self, factor: float) -> "Spent":
        calls, tokens, trajectories = (
            round(value * factor) for value in (self.calls, self.tokens, self.trajectories)
        )
        return Spent(self.usd * factor, calls, tokens, trajectories)

    def at_least(self, known: "Spent") -> "Spent":
        """Each amount, or what is known of it if that is more."""
        return Spent(
            max(self.usd, known.usd),
            max(self.calls, known.calls),
            max(self.tokens, known.tokens),
            max(self.trajectories, known.trajectories),
        )

    @property
    def values(self) -> tuple[float, int, int, int]:
        """In the order of the fields."""
        return self.usd, self.calls, self.tokens, self.trajectories


class Meter:
    """Keeps to a budget: what is under way is reserved, so that no two calls can pass on the same rest.

    Args:
        budget: the limits.
        share: how many processes share them; each keeps to its part.
    """

    def __init__(self, budget: Budget, share: int = 1) -> None:
        self._budget = budget
        self.share = share
        self.spent = Spent()
        self._reserved = Spent()
        self._changed = asyncio.Condition()

    @property
    def limits_usd(self) -> bool:
        """Whether dollars have a limit."""
        return self._budget.usd is not None

    @property
    def is_limited(self) -> bool:
        """Whether anything but trajectories has a limit."""
        return (self._budget.usd, self._budget.calls, self._budget.tokens) != (None, None, None)

    def count(self, paid: Paid) -> None:
        """Add calls to what was spent."""
        spent = self.spent
        spent.usd += paid.usd
        spent.calls += paid.calls
        spent.tokens += paid.tokens

    async def reserve(self, most: Callable[[], Spent]) -> Spent:
        """Set aside what a call may take, and say what was; waits where only calls under way are in its way.

        `most` says what it may take, as far as it is known by then. Infinite dollars, of a call that nobody
        knows the price of, take all that is left.
        Raises BudgetReachedError where it does not fit whatever those under way turn out to cost.
        """
        async with self._changed:
            while True:
                taken = self._known(most())
                limit = self._exceeded(self.spent + self._reserved + taken)
                if limit is None:
                    self._reserved = self._reserved + taken
                    return taken
                if self._exceeded(self.spent + taken) is not None:
                    raise self._reached(limit)
                await self._changed.wait()

    def _known(self, most: Spent) -> Spent:
        """Dollars that are not infinite: the whole rest, or a little more than nothing if it is none."""
        if math.isfinite(most.usd):
            return most
        limit = self._budget.usd
        rest = 0.0 if limit is None else limit / self.share - self.spent.usd
        return replace(most, usd=rest if limit is None or rest > 0 else _LEAST)

    async def settle(self, most: Spent, paid: Paid) -> None:
        """Replace what was set aside by what was spent."""
        async with self._changed:
            self._reserved = self._reserved + -most
            self.count(paid)
            self._changed.notify_all()

    def count_trajectories(self, count: int) -> None:
        """Count so many more trajectories. Raises BudgetReachedError if they are not allowed."""
        more = self.spent + Spent(trajectories=count)
        limit = self._budget.trajectories
        if limit is not None and more.trajectories > limit / self.share:
            raise self._reached("trajectories")
        self.spent = more

    def _exceeded(self, spent: Spent) -> str | None:
        limits = asdict(self._budget)
        for name, value in zip(limits, spent.values, strict=True):
            if limits[name] is not None and value > limits[name] / self.share + 1e-12:
                return name
        return None

    def _reached(self, name: str) -> BudgetReachedError:
        limit = asdict(self._budget)[name]
        used = asdict(self.spent)[name]
        return BudgetReachedError(
            f"The budget is used up: {used:g} of {limit:g} {name}; the run ends at its last complete "
            f"generation, raise budget.{name} and go on with --ckpt_path."
        )

    @property
    def total(self) -> Spent:
        """What all processes have spent, if the others spent as much as this one."""
        return self.spent * self.share

    @total.setter
    def total(self, spent: Spent) -> None:
        self.spent = spent * (1 / self.share)
