"""Lightning callbacks of a coordinator's training."""
