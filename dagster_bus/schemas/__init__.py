"""Payload schemas: the types that `topics.yaml` may declare, in the words of Spark's DDL."""
