"""Experiments of XUFM: unconstrained features under the squared loss, in one and two levels."""
