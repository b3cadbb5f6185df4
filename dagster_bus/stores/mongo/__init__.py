"""The store for many machines: a MongoDB replica set."""
