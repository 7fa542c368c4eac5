"""Grades of the printed forms, and the identities that are definitions."""

FALSE = {
    "info/mir-limit",
    "info/remark-4.6",
    "mse/algorithm",
    "mse/appendix-c.2-nc1",
    "mse/appendix-c.2-nc23",
    "mse/definition-5",
    "mse/lemma-4",
    "mse/lemma-5",
    "mse/proposition-2",
    "mse/proposition-4-adjoint",
    "xufm/appendix-d",
    "xufm/conjecture-4.2",
    "xufm/remark-4.1",
}
GAP = {
    "info/corollary-4.3-relu",
    "mse/appendix-d.6",
    "mse/definition-2",
    "mse/section-2-noise",
    "mse/theorem-3",
    "mse/trace",
    "pfc/theorem-2",
    "vci/definition-5.3-rank",
    "vci/equation-7-imbalanced",
    "vci/observation-4.4",
    "vci/observation-4.5",
    "vci/theorem-5.1-imbalanced",
    "xufm/theorem-4.1",
    "xufm/theorem-4.2",
}
SLIP = {
    "mse/appendix-d.1",
    "mse/equation-7",
    "pfc/theorem-3",
    "vci/theorem-5.1-proof",
    "vci/theorem-5.2-proof",
}
DEFINITIONS = {
    "mse/equation-8",
    "mse/observation-2",
    "mse/observation-3",
    "vci/equation-7",
    "vci/figure-1",
}
