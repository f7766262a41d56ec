import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def write_rows(tmp_path: Path) -> Callable[..., str]:
    """Writes rows as JSON Lines, gzip if the name says so, and gives the path."""

    def write(name: str, rows: list[dict[str, Any]]) -> str:
        text = "".join(json.dumps(row) + "\n" for row in rows).encode()
        (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
        return str(tmp_path / name)

    return write
