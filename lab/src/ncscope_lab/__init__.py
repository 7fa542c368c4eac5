"""Laboratory: train networks, run surrogate models, check theorems, repeat the papers.

Everything here needs the extra ``lab``. Nothing outside this package imports it: the command
``ncscope`` finds the laboratory's verbs through the entry-point group ``ncscope.commands``.
"""
