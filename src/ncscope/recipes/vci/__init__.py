"""The experiments of VCI."""
