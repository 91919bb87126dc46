"""Components in which every factor only bounds the number of its variables that are on."""
