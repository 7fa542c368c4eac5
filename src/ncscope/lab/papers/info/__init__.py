"""Experiments of INFO sections 5 and 6: MIR and HDR of the whole data set and by batch."""
