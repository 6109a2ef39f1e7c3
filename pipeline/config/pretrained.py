"""Looks at the pretrained folder of a job before any work is done for it."""

from pathlib import Path

from pipeline.config.job import JobConfig, resolve_location
from pipeline.contract.errors import ConfigError

_FILES = ("config.json", "model.safetensors", "tokenizer.json")


def check_pretrained(job: JobConfig) -> None:
    """Check that ``model.pretrained``, if it is set, is a folder in Hugging Face's format.

    Raises:
        ConfigError: there is no such folder, a file is missing in it, or the package of a
            ``package://`` location is not installed.
    """
    location = job.model.pretrained
    if location is None:
        return
    folder = Path(resolve_location(location)).absolute()
    if not folder.is_dir():
        raise ConfigError(
            f"there is no folder {folder}",
            place="model.pretrained",
            value=location,
            remedy="It must be a local folder in Hugging Face format; nothing is downloaded. "
            f"{_how_to_get(location)} null starts from random weights.",
        )
    # With a model of the user's own only the tokenizer is taken from the folder.
    needed = _FILES if job.model.factory is None else _FILES[-1:]
    missing = [name for name in needed if not (folder / name).is_file()]
    if missing:
        raise ConfigError(
            f"the folder {folder} has no {' and no '.join(missing)}",
            place="model.pretrained",
            value=location,
            remedy=f"It must hold {', '.join(needed)} of one BERT model; weights in pickled "
            "files (.bin) are never read.",
        )


def _how_to_get(location: str) -> str:
    # A hub's name is NAME or OWNER/NAME; anything else is a path.
    is_name = location.count("/") <= 1 and not location.startswith((".", "/", "~"))
    name = location if is_name else "OWNER/NAME"
    target = f"models/{name.rpartition('/')[2]}"
    return (
        f"Get one with `pip install huggingface_hub` and `hf download {name} --local-dir "
        f"{target}`, then set model.pretrained to {target}."
    )
