"""(task, final answer) -> reward: graders that never execute what they grade."""
