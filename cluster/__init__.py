"""Where textlane runs: local start and stop, the demo, and the doctor."""

COMMANDS = {
    "demo": "run a job, serve its bundle, send real requests and print one table",
    "doctor": "name what ails a service, a training or a bundle, and the cure",
    "serve": "serve a bundle over HTTP on this machine, until Ctrl-C",
}
"""Commands of this package with one line each, for the list that `textlane --help` prints."""
