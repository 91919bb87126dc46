"""What a user declares: variables, and factors over them."""
