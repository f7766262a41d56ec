"""TRINITY: a tiny evolved coordinator of LLMs (arXiv 2512.04695)."""
