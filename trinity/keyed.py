"""Random numbers that depend on a key, not on what was drawn before.

Every draw of a run is keyed, e.g. by (seed, generation, task, turn). The same key gives the same number
whatever the concurrency, the order of arrival, or the point where a run was resumed.
"""

import hashlib

import numpy as np

Key = str | int


def _digest(key: tuple[Key, ...], size: int) -> int:
    # repr keeps 1 and "1", and ("a", "b") and ("ab",), apart.
    return int.from_bytes(hashlib.blake2b(repr(key).encode(), digest_size=size).digest(), "little")


def uniform(*key: Key) -> float:
    """A number in [0, 1), the same for the same key. 53 random bits."""
    return (_digest(key, 8) >> 11) * 2.0**-53


def generator(*key: Key) -> np.random.Generator:
    """A counter-based generator (Philox 4x64, Salmon et al. 2011) of its own for this key."""
    return np.random.Generator(np.random.Philox(key=_digest(key, 16)))
