"""Load an mBART, or another encoder-decoder, and its tokenizer: from the hub, a directory, or one that is shipped."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import HfApi, constants
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, OfflineModeIsEnabled
from safetensors import SafetensorError
from transformers import (
    CONFIG_MAPPING,
    MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import logging

from course_lib import files
from course_lib.mbart import structure
from course_lib.mbart.families import decoder_start, languages

COURSE_MBART = "course-mbart"
COURSE_MBART_DIR = Path(__file__).with_name(COURSE_MBART)
UNALIGNED = "course-mbart-unaligned"
"""Trained as `course-mbart`, but without the loss that draws translations together: what to compare it with."""
HELP = "course-mbart-help"
"""Pretrained on real text, the help of LibreOffice in four languages, and on nothing else."""
OF_GENERATED_TEXT = (COURSE_MBART, UNALIGNED)
"""The shipped models that have read the built-in corpus and nothing else."""
SHIPPED = {name: Path(__file__).with_name(name) for name in (*OF_GENERATED_TEXT, HELP)}

_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
_HUB_TIMEOUT_S = 3.0
_TOKENIZER_FILES = (
    "tokenizer.json",
    "sentencepiece.bpe.model",
    "spiece.model",
    "tokenizer.model",
    "prophetnet.tokenizer",
    "vocab.json",
)
_LOAD_ERRORS = (OSError, ValueError, RuntimeError, SafetensorError)


class ModelUnavailable(RuntimeError):  # noqa: N818  (reads as what it says: the model is unavailable)
    """A model that cannot be loaded; the message says what is missing and what to do."""


def load(
    name: str = COURSE_MBART, *, device: str | torch.device = "cpu", dtype: torch.dtype = torch.float32
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load an mBART or another encoder-decoder (`course_lib.mbart.families`), ready for inference, and its tokenizer.

    `name` is "course-mbart", "course-mbart-unaligned" or "course-mbart-help" (shipped with this package), a directory
    written by `save_pretrained`, or a name on the hub such as "facebook/mbart-large-50". The hub is asked only for a hub
    name that is not in its local cache, and never when `HF_HUB_OFFLINE=1`.

    The files of a directory with SHA256SUMS, as the shipped ones are and those that `pretrain` writes, are compared with
    it first.

    Raises ModelUnavailable when there is no such model, it cannot be reached, it is incomplete or damaged, or it is
    of another kind.
    """
    source = _directory(name)
    with _quiet_transformers():
        if source is not None:
            model, tokenizer = _read(source, label=name, dtype=dtype)
        else:
            model, tokenizer = _read_from_hub(name, dtype=dtype)
    return model.to(device).eval(), tokenizer


def _directory(name: str) -> str | None:
    """The directory that `name` means, checked; None for a hub name."""
    path = SHIPPED.get(name) or Path(name).expanduser()
    if path.is_dir():
        missing = "config.json" if not (path / "config.json").is_file() else None
        if not any((path / file).is_file() for file in _TOKENIZER_FILES):
            missing = missing or f"tokenizer ({', '.join(_TOKENIZER_FILES[:-1])} or {_TOKENIZER_FILES[-1]})"
        if missing:
            raise ModelUnavailable(
                f"model {name!r} is a directory without {missing}; pass a directory that "
                f"save_pretrained wrote for the model and for its tokenizer, or use {COURSE_MBART!r}"
            )
        _check_sums(path, shipped=name in SHIPPED)
        return str(path)
    if name in SHIPPED:
        raise ModelUnavailable(f"the shipped model is missing at {path}; install course-lib again")
    if not _HUB_NAME.fullmatch(name) or path.exists():
        raise ModelUnavailable(
            f"model {name!r} is neither a directory that exists nor a hub name (owner/model); "
            f"pass one of the two, or use {COURSE_MBART!r}"
        )
    return None


def _check_sums(path: Path, *, shipped: bool) -> None:
    """Raise ModelUnavailable where a file is not as it was written; a directory without SHA256SUMS has none to tell."""
    if not shipped and not (path / files.SUMS).is_file():
        return
    try:
        files.check_sums(path)
    except (OSError, ValueError) as error:
        what_to_do = (
            "install course-lib again"
            if shipped
            else f"restore it, or remove {path / files.SUMS} if it was changed on purpose"
        )
        raise ModelUnavailable(f"{error}; {what_to_do}") from error


def _read_from_hub(name: str, *, dtype: torch.dtype):
    """From the local cache where it is complete, so that a cached model needs no network at all."""
    try:
        return _read(name, label=name, dtype=dtype)
    except ModelUnavailable as error:
        if not isinstance(error.__cause__, OSError):  # it is there, and something else is wrong with it
            raise
    _check_hub(name)
    return _read(name, label=name, dtype=dtype, download=True)


def _check_hub(name: str) -> None:
    """One short request, because the hub client itself retries for half a minute when it is offline."""
    advice = (
        f"download it once with network access (load({name!r})), after which the cache in "
        f"{constants.HF_HUB_CACHE} serves it offline (HF_HUB_OFFLINE=1), or pass a local directory, "
        f"or use {COURSE_MBART!r}"
    )
    try:
        HfApi().model_info(name, timeout=_HUB_TIMEOUT_S)
    except OfflineModeIsEnabled as error:
        raise ModelUnavailable(
            f"model {name!r} is not in the local cache and HF_HUB_OFFLINE forbids the hub; {advice}"
        ) from error
    except (HfHubHTTPError, HFValidationError) as error:
        raise ModelUnavailable(
            f"the hub gives no model {name!r}: check the name; otherwise {advice}"
        ) from error
    except Exception as error:  # whichever HTTP library this version of the hub client builds on
        raise ModelUnavailable(
            f"model {name!r} is not in the local cache and the hub cannot be reached; {advice}"
        ) from error


def _read(source: str, *, label: str, dtype: torch.dtype, download: bool = False):
    """Configuration, weights and tokenizer through transformers' own from_pretrained."""
    local = {"local_files_only": not download}
    try:
        config, _ = PreTrainedConfig.get_config_dict(source, **local)
        made_by = _class_of(config.get("model_type"))
        if made_by is None:
            raise ModelUnavailable(
                f"model {label!r} is a {config.get('model_type')!r} model; expected an encoder-decoder that transformers "
                f"knows for text, for instance {COURSE_MBART!r}, 'facebook/mbart-large-50' or 'google-t5/t5-base'"
            )
        _refuse_hub_kernels(config, label)
        model, report = AutoModelForSeq2SeqLM.from_pretrained(
            source,
            dtype=dtype,
            attn_implementation=_attention(config, made_by),
            output_loading_info=True,
            **local,
        )
        tokenizer = AutoTokenizer.from_pretrained(source, **local)
    except ModelUnavailable:
        raise
    except _LOAD_ERRORS as error:
        raise ModelUnavailable(
            f"model {label!r} could not be read ({error}); pass a complete model directory or hub name, "
            f"or use {COURSE_MBART!r}"
        ) from error
    if report["missing_keys"]:
        # transformers fills gaps with random numbers, which nothing downstream could notice.
        raise ModelUnavailable(
            f"model {label!r} lacks {len(report['missing_keys'])} weights, such as "
            f"{min(report['missing_keys'])}; expected a checkpoint of {type(model).__name__}"
        )
    try:
        structure.check(model)
        decoder_start([0], model.config)
    except ValueError as error:
        raise ModelUnavailable(
            f"model {label!r} is a {config['model_type']!r} model that is not read here: {error}"
        ) from error
    n_ids = max(
        [len(tokenizer), *(1 + i for i in languages(tokenizer).values())]
    )  # M2M100's are beyond its len
    n_embedded = model.get_input_embeddings().num_embeddings
    if n_ids > n_embedded:
        raise ModelUnavailable(
            f"model {label!r} embeds {n_embedded} tokens but its tokenizer has "
            f"{n_ids}; pass a directory whose model and tokenizer belong together"
        )
    return model, tokenizer


def _class_of(model_type: str | None) -> type[PreTrainedModel] | None:
    """The class with which transformers makes text from text; None where it has none for this kind."""
    if model_type not in CONFIG_MAPPING:
        return None
    return MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING.get(CONFIG_MAPPING[model_type], None)


def _attention(config: dict[str, Any], made_by: type[PreTrainedModel]) -> str:
    """Which of transformers' own ways to compute attention: 'eager' where the configuration or the class wants it."""
    asked = config.get("attn_implementation", config.get("_attn_implementation"))
    return "sdpa" if made_by._supports_sdpa and asked != "eager" else "eager"


def _refuse_hub_kernels(config: dict[str, Any], label: str) -> None:
    """Raise ModelUnavailable where a configuration names code of the hub (owner/name) for its attention."""
    for key, value in config.items():
        if key.lstrip("_").startswith("attn_implementation"):
            given = value.values() if isinstance(value, dict) else [value]
            if any(one is not None and str(one).count("/") for one in given):
                raise ModelUnavailable(
                    f"model {label!r} asks in its config.json for {key} {value!r}, which transformers would download and "
                    "run; expected 'eager' or 'sdpa'"
                )
        elif isinstance(value, dict):
            _refuse_hub_kernels(value, label)


@contextmanager
def _quiet_transformers() -> Iterator[None]:
    """No loading bars and advice from transformers; download bars of the hub client stay."""
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
