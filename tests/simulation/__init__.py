"""A deterministic simulation of publishers, groups, workers and clocks: one seed, one history."""
