"""What runs inside the sandbox. It imports the standard library and itself only."""
