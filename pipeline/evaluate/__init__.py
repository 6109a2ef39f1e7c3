"""Quality of a checkpoint, and the report a person looks at."""
