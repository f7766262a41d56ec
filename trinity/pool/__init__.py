"""(agent, messages) -> completion: the LLMs that the coordinator picks from."""
