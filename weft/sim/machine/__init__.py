"""The simulated machine: programs, blocks, tasks and agents, run-time values, mbarriers, and the scheduler."""
