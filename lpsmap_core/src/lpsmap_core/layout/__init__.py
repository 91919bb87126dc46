"""The layout of declarations in flat arrays: links, buckets and components."""
