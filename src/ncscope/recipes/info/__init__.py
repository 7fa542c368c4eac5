"""The experiments of INFO sections 5 and 6: MIR and HDR, for the whole set and by batch."""
