"""Behavior trees on an event loop over one typed state."""
