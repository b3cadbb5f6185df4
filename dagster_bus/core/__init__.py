"""The rules of the bus, free of any I/O library.

What is here may be imported in any process at no cost. It knows neither databases nor Dagster nor
Spark, and takes the time as an argument or from a clock that the caller hands in.
"""
