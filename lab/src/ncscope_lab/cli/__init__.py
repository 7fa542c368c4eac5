"""Commands of the laboratory: demo, theory, run, list, sweep, zoo."""
