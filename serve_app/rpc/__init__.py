"""The prediction API over gRPC."""
