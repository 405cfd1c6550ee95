"""Attention: its scale, positions by rotation, and relatives that cost linear time in the sequence (lessons 13 to 17)."""
