"""The experiments of XUFM."""
