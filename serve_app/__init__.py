"""Bundle to answers; never imports torch."""

from pipeline.contract.telemetry import refuse_telemetry

# Here, so that it comes before whichever module of this package imports onnxruntime first.
refuse_telemetry()

COMMANDS = {
    "load": "measure a running service: latencies, throughput, failures",
    "predict": "label texts with a bundle, without a server",
    "release": "give a new bundle a growing share of the traffic, watched, or take it back",
    "tune": "measure a bundle on this machine and write how to serve it best",
}
"""Commands of this package with one line each, for the list that `textlane --help` prints."""
