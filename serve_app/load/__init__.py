"""The load generator, `textlane load`: requests to a running service, and what became of them."""
