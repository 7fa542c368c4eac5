"""Names of several layers' metrics in a flat log."""

from ncscope.probing.records import ProbeRecord


def logged(record: ProbeRecord, prefix: str) -> dict[str, float]:
    """Return the metrics of all layers under unique names.

    Args:
        record: Record of the measurement.
        prefix: Beginning of all names.

    Returns:
        Metrics of the head's features, named by their keys, and metrics of the other layers, named
        by layer, a slash and the key.

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
