"""Architectures: the layers that networks are built from, their gradients by hand, and what they cost (lessons 08 to 12)."""
