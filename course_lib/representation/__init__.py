"""Representation: what a code keeps of the states that it stands for (parts IV and VI)."""
