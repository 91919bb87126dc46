"""Local problems, of one factor each: closed forms and the active set."""
