"""Libraries that a lesson compares with, and that may be absent."""

from importlib import import_module


def has_peer(package: str) -> bool:
    """Whether a library to compare with can be imported; where not, one printed line says what to install."""
    try:
        import_module(package)
    except ImportError:
        print(
            f"This comparison needs the package {package}: close the course and call `make lab PEERS=1`, "
            "or run %pip install 'course-lib[peers]'"
        )
        return False
    return True
