"""Where textlane runs: local start and stop, and the demo."""

COMMANDS = {
    "demo": "run a job, serve its bundle, send real requests and print one table",
    "serve": "serve a bundle over HTTP on this machine, until Ctrl-C",
}
"""Commands of this package with one line each, for the list that `textlane --help` prints."""
