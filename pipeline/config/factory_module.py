"""Finds the file of a model by import path, without running it."""

import importlib
import importlib.util
import os
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

from pipeline.config.job import JobConfig
from pipeline.contract.errors import ConfigError

FACTORY_PLACE = "model.factory"


def check_factory(job: JobConfig) -> None:
    """Check that the module of ``model.factory``, if it is set, is there.

    Raises:
        ConfigError: it is not; the message names where it was sought.
    """
    if job.model.factory is not None:
        find_factory_file(job.model.factory)


def find_factory_file(factory: str) -> Path:
    """Return the source file of ``package.module:function``; only its packages are imported.

    The module can be imported afterwards, also where the working directory is not on Python's
    path, as under the console script ``textlane``.

    Raises:
        ConfigError: there is no such module, or it is no file; it names where it was sought.
    """
    module = factory.partition(":")[0]
    importlib.invalidate_caches()  # The file may be younger than the last look at its folder.
    spec = _find_spec(module)
    if spec is None and os.getcwd() not in sys.path:
        # Last, so that a file of the user hides no installed package. Ray puts the directory
        # that its driver works in on its workers' path by itself.
        sys.path.append(os.getcwd())
        spec = _find_spec(module)
    if spec is None:
        raise ConfigError(
            f"there is no module {module}; searched were {', '.join(filter(None, sys.path))}",
            place=FACTORY_PLACE,
            value=factory,
            remedy="Run the command in the folder that the import path starts in, or install "
            "the package.",
        )
    if not spec.has_location or spec.origin is None or not Path(spec.origin).is_file():
        raise ConfigError(
            f"{module} is not a Python file",
            place=FACTORY_PLACE,
            value=factory,
            remedy="Name the module that holds the function, as package.module:function.",
        )
    return Path(spec.origin)


def _find_spec(module: str) -> ModuleSpec | None:
    try:
        return importlib.util.find_spec(module)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module}.".startswith(f"{error.name}."):
            return None
        raise _failed_package(module, error) from error
    except Exception as error:  # Whatever the package's own code raises.
        raise _failed_package(module, error) from error


def _failed_package(module: str, error: Exception) -> ConfigError:
    return ConfigError(
        f"importing the package of {module} failed: {type(error).__name__}: {error}",
        place=FACTORY_PLACE,
        value=module,
        remedy="Mend the package's __init__.py.",
    )
