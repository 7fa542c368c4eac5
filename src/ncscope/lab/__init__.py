"""Laboratory: train networks, simulate surrogate models, check theorems, reproduce papers.

Everything here needs the extra ``lab``. Nothing outside this package imports it: the command
``ncscope`` finds the laboratory's verbs through the entry-point group ``ncscope.commands``.
"""
