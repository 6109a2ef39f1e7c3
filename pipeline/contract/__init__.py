"""What training and serving must agree on; imports neither Ray nor torch."""
