"""What several tests of this folder use."""

from release_office import office

__all__ = ["office"]
