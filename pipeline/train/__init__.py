"""The training loop in plain torch, and the Ray rim around it."""
