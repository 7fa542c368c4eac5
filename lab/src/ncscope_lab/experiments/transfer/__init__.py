"""The zoo: scores that predict transfer, compared on networks trained here."""
