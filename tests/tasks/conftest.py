import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def shared_data() -> Path:
    """The folder of public benchmark files, kept beside the repository."""
    folder = Path(__file__).parents[2].parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"no benchmark files in {folder}")
    return folder


@pytest.fixture
def write_rows(tmp_path: Path) -> Callable[..., str]:
    """Writes rows as JSON Lines, gzip if the name says so, and gives the path."""

    def write(name: str, rows: list[dict[str, Any]]) -> str:
        text = "".join(json.dumps(row) + "\n" for row in rows).encode()
        (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
        return str(tmp_path / name)

    return write
