"""Optimizers of theta as torch.optim.Optimizer subclasses."""
