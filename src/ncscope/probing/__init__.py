"""Run a model over data, tap its layers, gather statistics, compute: plain records out."""
