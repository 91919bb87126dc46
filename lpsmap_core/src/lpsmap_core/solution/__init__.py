"""What a solve gives: marginals, structures, a plan of how, and words about what failed."""
