"""Ways in and out of the bus besides publishing and reading."""
