"""Bundle to answers; never imports torch."""

COMMANDS = {"predict": "label texts with a bundle, without a server"}
"""Commands of this package with one line each, for the list that `textlane --help` prints."""
