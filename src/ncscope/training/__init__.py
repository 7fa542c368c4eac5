"""Train classifiers with collapse in view: data, the loop, run folders."""
