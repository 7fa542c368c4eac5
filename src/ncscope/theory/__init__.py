"""What the papers prove, checked: every statement on fresh random instances."""
