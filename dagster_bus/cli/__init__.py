"""The command `dagster-bus`: one thin module for each group of commands."""
