"""For teachers: learners' progress side by side, and lessons handed out and graded."""
