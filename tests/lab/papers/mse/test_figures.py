"""The grid of the paper's figures."""

from matplotlib.axes import Axes

from ncscope.lab.papers.mse.figures import grid
from ncscope.lab.papers.mse.training import BOTH
from tests.lab.papers.mse.histories import small


def test_the_grid_has_a_column_a_data_set_and_a_row_a_kind_of_network() -> None:
    config = small(*BOTH)
    drawn: list[list[str]] = []

    def draw(panel: Axes, names: object) -> None:
        drawn.append(list(names))  # type: ignore[call-overload]
        panel.plot([1, 2], label="curve")
        panel.set_xlabel("epoch")

    figure = grid(config, list(config.runs), "quantity", draw)
    assert [len(names) for names in drawn] == [6] * 3  # three seeds of two losses
    visible = [axes.get_visible() for axes in figure.axes]
    assert visible == [True, True, True, False]
    named = [axes.get_xlabel() for axes in figure.axes if axes.get_visible()]
    assert named == ["", "epoch", "epoch"]  # below a column's last cell
    assert figure.axes[2].get_title(loc="left") == "ResNet, digits"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["curve"]
