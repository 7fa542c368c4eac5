"""Verdicts on claims: intervals, the rule that judges them, and combined verdicts."""
