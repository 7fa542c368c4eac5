"""Images in files: what is damaged, odd or far too much is refused in one sentence."""

import json
import pickle
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from ncscope.api.named_images import ImageOptions, read_images
from ncscope.api.shard_files import expand_patterns
from ncscope.data import image_files
from ncscope.data.image_files import find_image_files, read_image_files
from ncscope.errors import InputError
from ncscope.models.libraries import ModelRequest, open_model


def png(shade: int, size: int = 4) -> dict[str, Any]:
    content = BytesIO()
    pixels = np.random.default_rng(shade).integers(0, 256, (size, size, 3)).astype(np.uint8)
    pixels[0, 0] = shade
    Image.fromarray(pixels).save(content, "png")
    return {"bytes": content.getvalue(), "path": None}


def write(labels: list[Any], metadata: Any = None, file: str = "a.parquet") -> list[Path]:
    table = pa.table({"image": [png(shade) for shade in range(len(labels))], "label": labels})
    if metadata is not None:
        table = table.replace_schema_metadata({"huggingface": json.dumps(metadata)})
    pq.write_table(table, file)
    return [Path(file)]


def declare(names: Any) -> dict[str, Any]:
    return {"info": {"features": {"label": {"_type": "ClassLabel", "names": names}}}}


@pytest.fixture(autouse=True)
def scratch(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("content", [{}, [], {"splits": [1]}, {"splits": ["train"]}, 3, "[" * 9999])
def test_an_odd_list_of_splits_is_one_sentence(content: Any) -> None:
    text = content if isinstance(content, str) else json.dumps(content)
    Path("dataset_dict.json").write_text(text)
    with pytest.raises(InputError, match="; save the data set again with save_to_disk"):
        find_image_files(".")


@pytest.mark.parametrize("content", [{}, {"_data_files": [{}]}, {"_data_files": []}, [], None])
def test_an_odd_list_of_files_is_one_sentence(content: Any) -> None:
    Path("state.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match="; save the data set again with save_to_disk"):
        find_image_files(".")


ODD = [[], {"info": []}, {"info": {"features": []}}, {"info": {"features": {"label": 3}}}]


@pytest.mark.parametrize("metadata", [*ODD, *map(declare, [3, "ab", [1, 2], ["x", "x"], {"a": 1}])])
def test_a_description_that_is_none_names_no_classes(metadata: Any) -> None:
    pictures, names = read_image_files(write([0, 1, 1], metadata))
    assert (names, pictures.labels.tolist()) == ((), [0, 1, 1])


@pytest.mark.parametrize("names", [None, ["cat", "dog"]])
def test_labels_that_are_left_out_may_be_any_numbers(names: Any) -> None:
    files = write([0, 255, 1, -1], None if names is None else declare(names))
    pictures, found = read_image_files(files, ignore_index=(-1, 255))
    assert pictures.labels.tolist() == [0, 255, 1, -1]
    assert found == tuple(names or ())
    with pytest.raises(InputError, match=r"found -1, .* or leave them out with --ignore-index -1"):
        read_image_files(files, ignore_index=255)
    if names:
        with pytest.raises(InputError, match=r"label 255; .* out with --ignore-index 255"):
            read_image_files(files, ignore_index=-1)
    with pytest.raises(InputError, match="samples to measure, found all 2 labelled -1"):
        read_image_files(write([-1, -1]), ignore_index=-1)


@pytest.mark.parametrize("labels", [[0, None, 1], ["cat", None, "dog"], ["cat", "", "dog"]])
def test_advice_on_missing_labels_is_for_files(labels: list[Any]) -> None:
    with pytest.raises(
        InputError, match=r"1 of 3 missing, the first at row 1; .*--label-key"
    ) as no:
        read_image_files(write(labels))
    assert "keep" not in str(no.value)
    assert "ignore_index" not in str(no.value)


def test_rows_that_expand_are_read_in_parts(monkeypatch) -> None:
    pictures = [png(shade, size=100) for shade in range(3)]
    rows = [0, 1, 2] * 30
    table = pa.table({"image": [pictures[row] for row in rows], "label": rows})
    pq.write_table(table, "a.parquet")  # each picture once
    size = Path("a.parquet").stat().st_size
    assert table.nbytes > 20 * size
    monkeypatch.setattr(image_files, "_KEPT", 3 * size)
    read = read_image_files([Path("a.parquet")])[0].pictures
    assert callable(read)
    for index in [*range(90), 3, 89, 1, 1, 2]:
        assert read(index).getpixel((0, 0)) == (rows[index],) * 3
        assert sum(part.nbytes for _, part in read.kept) <= 4 * size
    assert pickle.loads(pickle.dumps(read))(5).getpixel((0, 0)) == (2,) * 3
    monkeypatch.setattr("ncscope.memory.available_memory", lambda: 1000)
    with pytest.raises(InputError, match=r"bytes of memory for rows of a\.parquet"):
        read_image_files([Path("a.parquet")])[0].picture(0)


@pytest.mark.parametrize("span", ["{0..999999999}", "{0..99}" * 9])
def test_braces_of_too_many_names_are_refused(span: str) -> None:
    with pytest.raises(InputError, match="at most 100,000 names in braces"):
        find_image_files(f"photos-{span}.tar")


def test_a_name_that_no_file_system_takes_is_one_sentence() -> None:
    for name in ("a" * 300, "a" * 300 + ".parquet", "a" * 300 + "/b"):
        assert find_image_files(name) == {}
        with pytest.raises(InputError, match="expected a data set of the catalogue, or a folder"):
            read_images(ImageOptions(name))
    with pytest.raises(InputError, match="expected the name of a model"):
        open_model(ModelRequest("a" * 300))
    with pytest.raises(InputError, match="files that match"):
        expand_patterns(["[a]" * 300])
