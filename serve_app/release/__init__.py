"""Release: a candidate version earns its traffic beside the stable one, or loses it."""
