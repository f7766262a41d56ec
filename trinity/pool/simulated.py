"""A simulated pool: no LLM at all, but a stand-in that solves the synthetic tasks and errs on purpose.

It reads what an LLM would read, the messages, and nothing else. It never sees a reference: it parses the
question, works the answer out, and then corrupts it with the probability that its skill leaves. Each draw is
keyed by (seed, agent, messages), so the same request always gets the same answer.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trinity import keyed
from trinity.errors import UserError
from trinity.pool.base import Completion, DecodeParameters, Message, Pool

_DOMAINS = ("math", "choice", "text")
_ROLE = re.compile(r"You are the (Thinker|Worker|Verifier)")
_ARITHMETIC = re.compile(r"(\d+) \* (\d+) ([+-]) (\d+)")
_OPTIONS = re.compile(r"(largest|smallest).*?A\) (\d+) B\) (\d+) C\) (\d+) D\) (\d+)", re.DOTALL)
_PHRASE = re.compile(r"'([a-z ]+)'.*?(backwards|in capital letters|without its vowels)")
_TURN = re.compile(r"^\[Turn \d+\] (Thinker|Worker|Verifier):\n(.*?)(?=^\[Turn |^=== End)", re.M | re.DOTALL)
_HELP = re.compile(r"\(simulated plan: \+(\d\.\d+)\)")


@dataclass(frozen=True)
class SimulatedAgent:
    """What one simulated agent can do.

    Args:
        name: shown in tables.
        skill: domain -> probability of a right Worker answer without a plan.
        thinker_bonus: what this agent's plan adds to the probability of the Workers after it.
        verifier_accuracy: probability that this agent's verdict on a Worker answer is right.
    """

    name: str
    skill: dict[str, float]
    thinker_bonus: float = 0.0
    verifier_accuracy: float = 0.5


@dataclass(frozen=True, slots=True)
class _Solved:
    domain: str
    right: str
    wrong: tuple[str, ...]


class SimulatedPool(Pool):
    """Simulated agents that answer the synthetic tasks (see the module's text).

    Args:
        agents: the agents, in the order of the head's logits.
        seed: of the agents' errors.
        ceiling: no Worker is right more often than this, whatever the plan.
    """

    def __init__(self, agents: list[SimulatedAgent], seed: int = 0, ceiling: float = 0.97) -> None:
        for agent in agents:
            rates = [*agent.skill.values(), agent.thinker_bonus, agent.verifier_accuracy]
            if not all(0.0 <= rate <= 1.0 for rate in rates):
                raise UserError(f"Simulated agent {agent.name!r} has a probability outside [0, 1]: {rates}.")
            if unknown := sorted(agent.skill.keys() - set(_DOMAINS)):
                raise UserError(
                    f"Simulated agent {agent.name!r} has a skill in {', '.join(unknown)}, but its questions "
                    f"are of {', '.join(_DOMAINS)}; rename it."
                )
        if not 0.0 <= ceiling <= 1.0:
            raise UserError(f"The simulated pool's ceiling is {ceiling}, but must lie in [0, 1].")
        self.simulated = tuple(agents)
        self._seed = seed
        self.ceiling = ceiling

    @property
    def agents(self) -> Sequence[str]:
        """The agents' names."""
        return [agent.name for agent in self.simulated]

    async def complete(self, agent: int, messages: Sequence[Message], decode: DecodeParameters) -> Completion:
        """Answer as the simulated agent would. Raises UserError for a question that is not synthetic."""
        system = "\n".join(m["content"] for m in messages if m["role"] == "system")
        user = "\n".join(m["content"] for m in messages if m["role"] != "system")
        found = _ROLE.search(system)
        role = found.group(1) if found else "Worker"
        solved = _solve(user.partition("\n\n=== Turns so far ===\n")[0])
        key = f"{agent}|{system}|{user}"
        who = self.simulated[agent]
        if role == "Thinker":
            text = _plan(solved, who.thinker_bonus)
        elif role == "Worker":
            text = self._work(solved, who.skill, user, key)
        else:
            text = self._judge(solved, who.verifier_accuracy, user, key)
        return Completion(
            text, prompt_tokens=len((system + user).split()), completion_tokens=len(text.split())
        )

    def _work(self, solved: _Solved, skill: Mapping[str, float], user: str, key: str) -> str:
        helps = [
            float(h) for turn, text in _TURN.findall(user) if turn == "Thinker" for h in _HELP.findall(text)
        ]
        chance = min(skill.get(solved.domain, 0.0) + max(helps, default=0.0), self.ceiling)
        if keyed.uniform("simulated", self._seed, "worker", key) < chance:
            return _answer(solved.domain, solved.right)
        which = int(keyed.uniform("simulated", self._seed, "error", key) * len(solved.wrong))
        return _answer(solved.domain, solved.wrong[which])

    def _judge(self, solved: _Solved, accuracy: float, user: str, key: str) -> str:
        answers = [text for turn, text in _TURN.findall(user) if turn == "Worker"]
        if not answers:
            return "Nothing to check yet.\nVERDICT: REVISE"
        right = answers[-1].strip() == _answer(solved.domain, solved.right)
        honest = keyed.uniform("simulated", self._seed, "verifier", key) < accuracy
        if right is honest:
            return "It holds.\nVERDICT: ACCEPT"
        return "It does not hold.\nVERDICT: REVISE"


def _answer(domain: str, value: str) -> str:
    if domain == "math":
        return f"The result = \\boxed{{{value}}}."
    if domain == "choice":
        return f"Answer: {value}"
    return f"letter by letter\nAnswer: {value}"


def _plan(solved: _Solved, bonus: float) -> str:
    steps = {
        "math": "1 * first, 2 + or - second",
        "choice": "A vs B, C vs D, then both",
        "text": "letter by letter, with care",
    }[solved.domain]
    return f"Plan: {steps}. (simulated plan: +{bonus:.2f})"


def _solve(question: str) -> _Solved:
    if found := _ARITHMETIC.search(question):
        a, b, c = int(found[1]), int(found[2]), int(found[4])
        value = a * b + c if found[3] == "+" else a * b - c
        return _Solved("math", str(value), (str(value + 10), str(value - 1), str(value + 1)))
    if found := _OPTIONS.search(question):
        values = [int(found[i]) for i in range(2, 6)]
        best = values.index(max(values) if found[1] == "largest" else min(values))
        letters = "ABCD"
        return _Solved("choice", letters[best], tuple(x for x in letters if x != letters[best]))
    if found := _PHRASE.search(question):
        phrase, how = found[1], found[2]
        right = {
            "backwards": phrase[::-1],
            "in capital letters": phrase.upper(),
            "without its vowels": "".join(c for c in phrase if c not in "aeiou"),
        }[how]
        return _Solved("text", right, (right[1:], right + right[-1], right[:-1]))
    raise UserError(
        f"The simulated pool only knows the synthetic tasks, but was asked: {question[:80]!r}; "
        "use SyntheticTasks or a real pool."
    )
