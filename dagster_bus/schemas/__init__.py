"""Payload schemas: one declaration checks what is published and gives Spark its column types."""

from dagster_bus.schemas.schema import PayloadSchema, columns, compile_schema

__all__ = ["PayloadSchema", "columns", "compile_schema"]
