"""What a program calls."""
