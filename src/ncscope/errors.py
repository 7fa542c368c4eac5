"""The one error a user is meant to see: what was expected, what was found, the likely fix."""


class InputError(ValueError):
    """Bad input, explained in one sentence.

    Args:
        expected: What the call needed, e.g. ``"labels in 0..9"``.
        found: What it got, with the offending value, e.g. ``"label 12 at row 3"``.
        fix: The likely remedy, e.g. ``"pass num_classes=13"``.

    Attributes:
        expected: As given, like the two below, for whoever knows more and says it again.
        found: What the call got.
        fix: The likely remedy.

    Example:
        >>> str(InputError(expected="labels in 0..9", found="label 12", fix="pass num_classes=13"))
        'expected labels in 0..9, found label 12; pass num_classes=13'
    """

    def __init__(self, *, expected: str, found: str, fix: str) -> None:
        super().__init__(f"expected {expected}, found {found}; {fix}")
        self.expected, self.found, self.fix = expected, found, fix
