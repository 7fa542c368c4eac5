"""A zoo of small networks, on which scores that predict transfer are compared."""
