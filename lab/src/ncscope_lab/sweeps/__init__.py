"""Many runs: all experiments of the papers, or one over settings, here or on a Ray cluster."""
