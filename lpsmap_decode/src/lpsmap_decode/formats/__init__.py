"""File formats of factor graphs from elsewhere."""
