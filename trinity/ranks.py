"""The processes of a distributed run: what each of them does, and how all come to know it."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import distributed


@dataclass(frozen=True)
class Ranks:
    """This process among those that share a generation."""

    rank: int = 0
    count: int = 1

    @classmethod
    def here(cls) -> "Ranks":
        """As torch's process group says; alone where there is none."""
        if not (distributed.is_available() and distributed.is_initialized()):
            return cls()
        return cls(distributed.get_rank(), distributed.get_world_size())

    def share(self, candidates: Sequence[int]) -> list[int]:
        """Which jobs are this process's, given the candidate of each.

        Candidate i goes to rank i mod N, so that its adapted weights are made once. Where there is one
        candidate only, the jobs themselves are dealt out.
        """
        alone = len(set(candidates)) == 1
        return [
            job
            for job, candidate in enumerate(candidates)
            if (job if alone else candidate) % self.count == self.rank
        ]

    def gather(self, value: Any) -> list[Any]:
        """Every rank's value, by rank, on every rank. Values travel as JSON: nothing is pickled."""
        device = torch.device("cuda" if distributed.get_backend() == "nccl" else "cpu")
        data = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8).to(device)
        sizes = [torch.zeros(1, dtype=torch.int64, device=device) for _ in range(self.count)]
        distributed.all_gather(sizes, torch.tensor([len(data)], device=device))
        longest = max(int(size) for size in sizes)
        padded = torch.nn.functional.pad(data, (0, longest - len(data)))
        parts = [torch.zeros(longest, dtype=torch.uint8, device=device) for _ in range(self.count)]
        distributed.all_gather(parts, padded)
        return [
            json.loads(bytes(part[: int(size)].cpu().numpy()))
            for part, size in zip(parts, sizes, strict=True)
        ]
