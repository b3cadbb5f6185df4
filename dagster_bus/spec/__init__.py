"""`topics.yaml`: read with places, checked, and put into the terms of the core."""
