"""What is compiled, how it is kept and called: the floor on which all else stands."""
