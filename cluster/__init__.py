"""Where textlane runs: local start and stop, and the demo."""
