"""Protocols, baselines and statistics of a trained coordinator."""
