"""How declarations lie in flat arrays: links, buckets, components."""
