"""What a rank writes down while it runs, for traces."""
