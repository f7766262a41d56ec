"""Roles, prompts, transcript, verdict, and the rollout of trajectories."""
