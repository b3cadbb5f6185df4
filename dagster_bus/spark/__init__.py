"""Spark's side of the bus: events as DataFrames, pipelines, and tables that take each delivery once."""
