"""From labelled text to a verified bundle; the only package that may import torch."""
