"""Benchmark files, hub ids and generated questions -> tasks."""
