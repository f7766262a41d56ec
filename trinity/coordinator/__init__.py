"""Transcript -> decision: the small language model, its SVF scales, and the head."""
