"""The cache's limit, and what it drops first."""

from hypothesis import given
from hypothesis import strategies as st

from trinity.coordinator.cache import LeastRecentlyUsed


def test_it_keeps_to_its_limit_and_drops_the_oldest() -> None:
    cache = LeastRecentlyUsed[str](limit=120)
    for i in range(3):
        cache.put(i, f"value {i}", 40)
    assert cache.get(0) == "value 0"
    cache.put(3, "value 3", 40)
    assert cache.get(1) is None
    assert all(cache.get(i) == f"value {i}" for i in (0, 2, 3))


def test_what_is_larger_than_the_limit_is_not_kept() -> None:
    cache = LeastRecentlyUsed[str](limit=120)
    cache.put("large", "x", 121)
    assert cache.get("large") is None


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 60)), max_size=40), st.integers(0, 100))
def test_the_sum_of_sizes_never_exceeds_the_limit(puts: list[tuple[int, int]], limit: int) -> None:
    cache = LeastRecentlyUsed[int](limit)
    for key, size in puts:
        cache.put(key, size, size)
        kept = [found for key in range(6) if (found := cache.get(key)) is not None]
        assert sum(kept) <= limit
        assert size > limit or cache.get(key) == size, "the newest is there"
