"""What runs: programs, blocks, tasks and agents, the values they compute, and who runs when."""
