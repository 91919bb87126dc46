"""Sentences of treebanks, random scores for their arcs, and their sparse distributions of trees."""
