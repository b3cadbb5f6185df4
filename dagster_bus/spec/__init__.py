"""`topics.yaml`: read with places, checked into typed specs, turned into the core's configurations."""
