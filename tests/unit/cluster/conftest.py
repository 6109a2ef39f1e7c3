"""What several tests of this folder use."""

from doctor_site import site

__all__ = ["site"]
