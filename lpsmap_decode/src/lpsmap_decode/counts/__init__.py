"""Components whose factors all bound how many of their variables are on."""
