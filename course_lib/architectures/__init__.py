"""Architectures: what the layers around attention compute, and their gradients by hand (lessons 08 to 12)."""

from course_lib.architectures.normalisation import BatchNorm, batch_norm, dropout, dropout_ridge

__all__ = ["BatchNorm", "batch_norm", "dropout", "dropout_ridge"]
