"""Bundle to answers; never imports torch."""
