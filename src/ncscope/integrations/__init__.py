"""Measuring inside other libraries' training: each module needs the library it is named after."""
