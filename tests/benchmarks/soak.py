"""20,000 calls of the real LiteLLM client to a faulty server on loopback: none lost, bounded memory.

`python tests/benchmarks/soak.py [calls]`; the last line is one JSON object; exits 1 where an answer is
missing or wrong, was paid for twice, where what was counted is not the server's bill, or where the last three
quarters of the calls needed over 100 MiB more than the first. One request in five meets a fault
(tests/fake_openrouter.py lists them). The server runs in a process of its own, so that the memory is the
client's. A second pass has to be answered by the cache alone.
"""

import asyncio
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from trinity.pool.base import Completion, DecodeParameters, Message, RetrySettings  # noqa: E402
from trinity.pool.cache import CompletionCache  # noqa: E402
from trinity.pool.litellm_pool import LiteLLMPool, ModelConfig  # noqa: E402
from trinity.pool.reliable import ReliablePool  # noqa: E402

SERVER = """
import sys
from tests.conftest import simulated_pool
from tests.fake_openrouter import FakeOpenRouter, any_form, sometimes
with FakeOpenRouter(simulated_pool(), sometimes(0.2)) as server:
    server.form = any_form
    print(server.base, flush=True)
    sys.stdin.read()
    most = max(server.answered.values())
    print(server.made.total(), server.answered.total(), most, server.usd, flush=True)
"""
RETRY = RetrySettings(attempts=12, first_wait=0.01, longest_wait=0.2)
GROWTH_MIB = 100
IN_FLIGHT = 64


def peak_mib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def messages(number: int) -> list[Message]:
    return [
        {"role": "system", "content": "You are the Worker of a small team."},
        {"role": "user", "content": f"Compute {number} * {number % 97} + {number % 89}."},
    ]


async def ask_all(pool: ReliablePool, calls: int) -> tuple[list[Completion], int]:
    """All answers, and the peak of memory after a quarter of them."""
    places, quarter = asyncio.Semaphore(IN_FLIGHT), 0

    async def one(number: int) -> Completion:
        nonlocal quarter
        async with places:
            completion = await pool.complete(number % 2, messages(number), DecodeParameters())
        if number == calls // 4:
            quarter = peak_mib()
        return completion

    return await asyncio.gather(*(one(number) for number in range(calls))), quarter


async def soak(base: str, folder: Path, calls: int) -> dict[str, float]:
    models = [ModelConfig(f"openai/agent-{i}", f"agent-{i}", api_base=base) for i in range(2)]
    store = CompletionCache(folder / "cache.sqlite")
    pool = ReliablePool(LiteLLMPool(models, retry=RETRY), store)
    begin = time.perf_counter()
    answers, quarter = await ask_all(pool, calls)
    seconds = time.perf_counter() - begin
    growth = peak_mib() - quarter
    again, _ = await ask_all(ReliablePool(LiteLLMPool(models), store, replay=True), calls)
    await pool.aclose()
    lost = sum(not completion.text for completion in answers) + (calls - len(answers))
    return {
        "calls": calls,
        "lost": lost,
        "cached": sum(completion.source == "cache" for completion in again),
        "equal_again": float(again == answers),
        "usd": round(sum(completion.paid.usd for completion in answers), 6),
        "calls_per_second": round(calls / seconds, 1),
        "peak_mib": peak_mib(),
        "growth_mib": growth,
    }


def main(calls: int) -> int:
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert server.stdout is not None
    base = server.stdout.readline().strip()
    with tempfile.TemporaryDirectory() as folder:
        line = asyncio.run(soak(base, Path(folder), calls))
    *counts, bill = server.communicate()[0].split()
    made, answered, most = map(int, counts)
    line |= {"requests": made, "faults": made - answered, "paid_twice": float(most > 1)}
    line["bill_usd"] = round(float(bill), 6)
    print(json.dumps(line))
    right = line["lost"] == 0 and line["cached"] == calls and line["equal_again"] and not line["paid_twice"]
    right = right and line["usd"] == line["bill_usd"]
    return int(not (right and answered == calls and line["growth_mib"] <= GROWTH_MIB))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 20_000))
