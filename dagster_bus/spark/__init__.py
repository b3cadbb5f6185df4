"""Spark's side: events as DataFrames, pipelines, and tables that take each delivery once."""
