"""Whether a figure can be read: which texts overlap, or are cut off at its edge."""

from itertools import combinations

from matplotlib.text import Text

ALLOWANCE = 1.0  # pixels


def shown(figure):
    """All texts that are drawn: ticks within the range only."""
    for ax in filter(lambda ax: ax.get_visible(), figure.axes):
        yield from (t for t in (ax.title, ax._left_title, ax._right_title, *ax.texts))
        for axis in (ax.xaxis, ax.yaxis):
            ticks = axis._update_ticks()  # those that are drawn
            yield from (label for tick in ticks for label in (tick.label1, tick.label2))
            yield from (axis.label, axis.offsetText)
        if ax.get_legend() is not None:
            yield from ax.get_legend().texts
    yield from (t for legend in figure.legends for t in legend.texts)


def crowded(figure):
    """Pairs of texts that overlap, and texts that leave the figure."""
    figure.canvas.draw()
    texts = [t for t in shown(figure) if t.get_visible() and t.get_text().strip()]
    boxes = [Text.get_window_extent(t) for t in texts]
    faults = []
    for (one, a), (other, b) in combinations(zip(texts, boxes, strict=True), 2):
        across = min(a.x1, b.x1) - max(a.x0, b.x0)
        along = min(a.y1, b.y1) - max(a.y0, b.y0)
        if min(across, along) > ALLOWANCE:
            faults.append((one.get_text(), other.get_text()))
    whole = figure.bbox
    for text, box in zip(texts, boxes, strict=True):
        beyond = max(-box.x0, -box.y0, box.x1 - whole.x1, box.y1 - whole.y1)
        if beyond > ALLOWANCE:
            faults.append((text.get_text(), "edge"))
    return faults
