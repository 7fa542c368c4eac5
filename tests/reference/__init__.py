"""The independent slow reference: every metric from its formula, in 50-digit arithmetic."""
