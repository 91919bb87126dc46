"""What plugins can offer, and how it is found."""
