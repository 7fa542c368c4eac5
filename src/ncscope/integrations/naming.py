"""Names of several layers' metrics in a flat log."""

from ncscope.probing.records import ProbeRecord


def logged(record: ProbeRecord, prefix: str) -> dict[str, float]:
    """Every layer's metrics under one name each.

    Args:
        record: Record of the measurement.
        prefix: Beginning of all names.

    Returns:
        The metrics of the head's features under their keys, those of a layer before it under its
        name, a slash and their keys.

    Example:
        >>> from ncscope.probing.records import LayerRecord
        >>> layers = [LayerRecord(name, {"nc1": 0.5}, (), 2, 10, 3) for name in ("stem", "last")]
        >>> logged(ProbeRecord(tuple(layers)), "val/")
        {'val/stem/nc1': 0.5, 'val/nc1': 0.5}
    """
    *before, last = record.layers
    named = {
        f"{prefix}{layer.layer}/{key}": value
        for layer in before
        for key, value in layer.metrics.items()
    }
    return named | {f"{prefix}{key}": value for key, value in last.metrics.items()}
