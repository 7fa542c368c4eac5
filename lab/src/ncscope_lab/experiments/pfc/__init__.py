"""Experiments of PFC."""
