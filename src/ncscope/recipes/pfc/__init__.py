"""The experiments of PFC."""
