"""Commands of the laboratory: demo, theory, reproduce, train, report, list, sweep, simulate."""
