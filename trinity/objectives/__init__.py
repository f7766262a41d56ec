"""Minibatch -> update."""
