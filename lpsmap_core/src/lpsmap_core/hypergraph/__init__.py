"""Dynamic programs as hypergraphs: the best derivation, sums over all, samples, the k best."""
