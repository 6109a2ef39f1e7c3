"""How the commands of this package tell people what went wrong."""

from rich.console import Console


def print_error(error: Exception) -> None:
    """Print an error as one red line on standard error."""
    _print(f"error: {error}", style="red")


def print_warning(text: str) -> None:
    """Print a warning as one yellow line on standard error."""
    _print(f"warning: {text}", style="yellow")


def _print(text: str, *, style: str) -> None:
    Console(stderr=True, soft_wrap=True).print(text, style=style, markup=False, highlight=False)
