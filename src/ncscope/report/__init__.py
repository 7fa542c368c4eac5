"""Reports as pages, figures, tables for the terminal, LaTeX, and claims."""
