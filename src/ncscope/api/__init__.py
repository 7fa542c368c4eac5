"""The front door: measure, and results that plot and save themselves."""
