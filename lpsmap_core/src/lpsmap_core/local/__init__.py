"""One factor's problem: closed forms, and the active set."""
