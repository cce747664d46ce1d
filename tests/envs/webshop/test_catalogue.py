import gzip
import json
import logging
import lzma
from pathlib import Path
from typing import Any

import pytest
from envs.webshop.goods import catalogue_of, record

from interlat.config import UserError
from interlat.envs.webshop.catalogue import Request, Review, build_catalogue, read_catalogue

WISHES = {"B000000001": {"attributes": ["arch support"]}}


def folder_of(tmp_path: Path, **files: bytes) -> Path:
    for name, content in files.items():
        (tmp_path / name.replace("__", ".")).write_bytes(content)
    return tmp_path


def test_a_record_becomes_a_product() -> None:
    reviews = [{"title": "Good", "stars": 4, "review": "Yes."}]
    [product] = catalogue_of(record(Reviews=reviews), **WISHES).products.values()
    assert product.title == "Acme Runner Walking Shoes"
    assert product.query == "walking shoes"
    assert product.path == ("Clothing", "Men", "Shoes")
    assert product.options == {"color": ("grey", "red | blue"), "size": ("9", "10")}
    assert product.attributes == ("arch support",)
    assert product.tag == "$30.0"
    assert product.reviews == (Review("Good", "4", "Yes."),)


@pytest.mark.parametrize(
    ("pricing", "prices", "tag"),
    [
        ("$1,299.00", (1299.0,), "$1299.0"),
        ("$19.99$27.99", (19.99, 27.99), "$19.99 to $27.99"),
        ([19.99, 27.99], (19.99, 27.99), "$19.99 to $27.99"),
        ("", (100.0,), "$100.0"),
        (None, (100.0,), "$100.0"),
    ],
)
def test_prices_are_read_as_the_original_reads_them(
    pricing: Any, prices: tuple[float, ...], tag: str
) -> None:
    [product] = catalogue_of(record(pricing=pricing)).products.values()
    assert (product.prices, product.tag) == (prices, tag)


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        ("no object", "not a JSON object"),
        (record(asin=None), "'asin' must be text"),
        (record(asin="B0000000012"), "no product id"),
        (record(name=7), "'name' must be text, found 7"),
        (record(pricing="free"), "'pricing' is no price"),
        (record(pricing=["many"]), "'pricing' is no price"),
        (record(pricing=[float("nan")]), "'pricing' is no price"),
        (record(small_description=[1]), "'small_description' must be a list of texts"),
        (record(customization_options=["red"]), "'customization_options' must be an object"),
        (record(customization_options={"Color": [{"name": "red"}]}), "'Color' has values without"),
        (record("B000000002"), "comes twice"),
    ],
)
def test_a_malformed_product_is_left_out_named_and_counted(
    broken: Any, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        catalogue = catalogue_of(record("B000000002"), broken)
    assert list(catalogue.products) == ["B000000002"]
    [why] = catalogue.left_out
    assert why.startswith("product 2: ")
    assert reason in why
    assert "test: 1 left out: product 2" in caplog.text


def test_a_catalogue_without_a_product_is_refused() -> None:
    with pytest.raises(UserError, match="no usable product; product 1: not a JSON object"):
        catalogue_of(3)


def test_people_s_instructions_need_an_attribute() -> None:
    said = {
        "instruction": "i need shoes.",
        "instruction_attributes": ["arch support"],
        "instruction_options": ["9"],
    }
    vague = {**said, "instruction_attributes": []}
    catalogue = build_catalogue([record()], {}, {"B000000001": [said, vague]}, "test")
    assert catalogue.human == {"B000000001": (Request("i need shoes", ("arch support",), ("9",)),)}


def test_the_same_reader_takes_every_packing(tmp_path: Path) -> None:
    products = json.dumps([record()]).encode()
    lines = json.dumps({"id": 1, "product": record(pricing=[30.0])}).encode() + b"\n"
    wishes = json.dumps(WISHES).encode()
    read = []
    for number, files in enumerate(
        (
            {"items_shuffle_1000__json": products, "items_ins_v2_1000__json": wishes},
            {"products__jsonl__xz": lzma.compress(lines), "items_ins_v2__json": wishes},
            {"items_shuffle__json__gz": gzip.compress(products), "items_ins_v2__json": wishes},
        )
    ):
        place = tmp_path / str(number)
        place.mkdir()
        read.append(read_catalogue(folder_of(place, **files)))
    assert read[0] == read[1] == read[2]
    assert list(read[0].products) == ["B000000001"]


def test_a_missing_file_is_named_with_where_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no items_shuffle\*\.json or .*setup\.sh -d small"):
        read_catalogue(folder_of(tmp_path, items_ins_v2__json=b"{}"))
    with pytest.raises(UserError, match=r"task\.data: .*nowhere"):
        read_catalogue(tmp_path / "nowhere")


def test_of_several_product_files_one_is_to_be_named(tmp_path: Path) -> None:
    content = json.dumps([record()]).encode()
    files = {"items_shuffle__json": content, "items_shuffle_1000__json": content}
    folder = folder_of(tmp_path, items_ins_v2__json=b"{}", **files)
    with pytest.raises(UserError, match=r"several .* items_shuffle\.json, items_shuffle_1000"):
        read_catalogue(folder)
    assert len(read_catalogue(folder / "items_shuffle_1000.json").products) == 1


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("items_shuffle__json", b"[{", "not valid JSON"),
        ("items_shuffle__json", b"{}", "expected a list of products"),
        ("items_shuffle__json", b"\xff\xfe", "cannot be read"),
        ("products__jsonl__xz", b"no xz", "cannot be read"),
        ("products__jsonl", b"\n[1", "no usable product"),
    ],
)
def test_an_unreadable_file_is_refused(
    tmp_path: Path, name: str, content: bytes, reason: str
) -> None:
    folder = folder_of(tmp_path, items_ins_v2__json=b"{}", **{name: content})
    with pytest.raises(UserError, match=reason):
        read_catalogue(folder)


def test_the_real_products_are_read_whole(real_folder: Path) -> None:
    catalogue = read_catalogue(real_folder)
    assert (len(catalogue.products), len(catalogue.synthetic)) == (1000, 415)
    assert catalogue.left_out == ()
