"""Dagster's side of the bus: the only part that imports dagster."""
