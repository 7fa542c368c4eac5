"""Commands of the laboratory: demo, theory, reproduce, train, list, sweep, simulate, zoo."""
