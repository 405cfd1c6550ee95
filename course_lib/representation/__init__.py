"""Representation: what a code keeps of the states that it stands for (lessons 18 to 21 and 27)."""
