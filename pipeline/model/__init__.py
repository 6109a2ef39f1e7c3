"""The encoder, its heads, and loading of pretrained weights."""
