"""Directories of autoencoders and of runs on a model hub, through huggingface_hub, which comes with transformers."""

from collections.abc import Sequence
from pathlib import Path


def fetch(
    source: Path | str,
    *,
    files: Sequence[str] | None = None,
    revision: str | None = None,
    token: str | None = None,
    local_files_only: bool = False,
) -> Path:
    """The directory `source`, or one with the files of the repository of that name, downloaded where they are not yet.

    `files` are names or patterns of those that are wanted (default: all). Raises FileNotFoundError where there is
    neither, and RuntimeError without huggingface_hub.
    """
    if Path(source).is_dir():
        return Path(source)
    hub = _huggingface_hub()
    try:
        return Path(
            hub.snapshot_download(
                str(source),
                allow_patterns=None if files is None else list(files),
                revision=revision,
                token=token,
                local_files_only=local_files_only,
            )
        )
    except (OSError, ValueError) as error:
        raise FileNotFoundError(
            f"source is {str(source)!r}; expected a directory, or a repository of the hub that can be read ({error})"
        ) from error


def push(
    directory: Path | str,
    repo_id: str,
    *,
    private: bool | None = None,
    revision: str | None = None,
    token: str | None = None,
    message: str,
) -> str:
    """Upload the files of a directory to a repository, which is made where it is not there yet; return its name.

    Raises RuntimeError without huggingface_hub, and OSError or ValueError, as the hub words them, where it refuses.
    """
    api = _huggingface_hub().HfApi(token=token)
    made = api.create_repo(repo_id, private=private, exist_ok=True)
    api.upload_folder(
        repo_id=made.repo_id, folder_path=str(directory), revision=revision, commit_message=message
    )
    return made.repo_id


def _huggingface_hub():
    try:
        import huggingface_hub
    except ImportError:
        raise RuntimeError(
            "huggingface_hub is not installed; it comes with transformers: python -m pip install huggingface_hub"
        ) from None
    return huggingface_hub
