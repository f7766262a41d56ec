"""Values by key, the least recently used ones dropped beyond a limit in bytes."""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

Value = TypeVar("Value")


class LeastRecentlyUsed(Generic[Value]):
    """A cache that never holds more than its limit.

    Args:
        limit: in bytes; 0 keeps nothing.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._bytes = 0
        self._entries: OrderedDict[Hashable, tuple[Value, int]] = OrderedDict()

    def get(self, key: Hashable) -> Value | None:
        """The value, which then counts as just used, or None."""
        found = self._entries.get(key)
        if found is None:
            return None
        self._entries.move_to_end(key)
        return found[0]

    def put(self, key: Hashable, value: Value, size: int) -> None:
        """Keep a value of so many bytes; the oldest ones go where there is no room, itself included."""
        former = self._entries.pop(key, None)
        self._bytes += size - (former[1] if former is not None else 0)
        self._entries[key] = (value, size)
        while self._bytes > self._limit:
            _, (_, dropped) = self._entries.popitem(last=False)
            self._bytes -= dropped
