"""Products and instructions in the WebShop format, read once and never changed.

A folder holds, each plain or packed as .xz or .gz:
items_shuffle*.json  [{"asin": "B09...", "name": "...", "category": "garden", "query": "rugs",
                       "product_category": "Home › Rugs", "pricing": "$19.99$27.99",
                       "full_description": "...", "small_description": ["...", ...],
                       "customization_options": {"Color": [{"value": "Red"}]}}, ...]
  or products*.jsonl, one a line: such a product, or {"product": it}; pricing may be a list there
items_ins_v2*.json   {asin: {"attributes": ["non slip", ...], "instruction": "Find me ...",
                             "instruction_attributes": ["non slip"]}, ...}
items_human_ins*.json, where there are human instructions
                     {asin: [{"instruction": "...", "instruction_attributes": [...],
                              "instruction_options": ["red"]}, ...], ...}
A product of any other form is left out, named and counted; an unreadable file is refused.
"""

import gzip
import json
import logging
import lzma
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from interlat.config import UserError
from interlat.envs.webshop.stock import stock

PRODUCTS = ("items_shuffle*.json", "products*.jsonl")
INSTRUCTIONS = ("items_ins_v2*.json",)
HUMAN_INSTRUCTIONS = ("items_human_ins*.json",)
SOURCE = "WebShop's setup.sh -d small downloads it (github.com/princeton-nlp/WebShop)"
UNPRICED = (100.0,)
"""What a product without a price costs."""
LONGEST_ASIN = 10
NAMED = 5
"""Left-out products that a warning names."""
_OPEN = {".xz": lzma.open, ".gz": gzip.open}
_log = logging.getLogger(__name__)


class Review(NamedTuple):
    """What a customer said."""

    title: str
    score: str
    body: str


class Request(NamedTuple):
    """An instruction that asks for a product; a goal once it has a price."""

    text: str
    attributes: tuple[str, ...]
    options: tuple[str, ...] | None
    """Option values asked for; None asks for every combination of them, a goal each."""


@dataclass(frozen=True)
class Product:
    """One product as the shop shows it. Option names and values are in lower case."""

    asin: str
    title: str
    category: str
    query: str
    path: tuple[str, ...]
    description: str
    features: tuple[str, ...]
    options: Mapping[str, tuple[str, ...]]
    attributes: tuple[str, ...]
    prices: tuple[float, ...]
    """The price, or the ends of its range, in dollars."""
    rating: str
    reviews: tuple[Review, ...]

    @property
    def tag(self) -> str:
        """The price as it is shown."""
        return " to ".join(f"${price}" for price in self.prices)


@dataclass(frozen=True)
class Catalogue:
    """Products in the file's order, with the instructions about each."""

    products: Mapping[str, Product]
    synthetic: Mapping[str, Request]
    human: Mapping[str, tuple[Request, ...]]
    left_out: tuple[str, ...]
    """Why each product or instruction that could not be read is missing."""


class _Malformed(Exception):
    """What is wrong with a record."""


def read_catalogue(place: Path | None) -> Catalogue:
    """The catalogue in a folder, or our own for None.

    place: the folder, or a product file in it where there are several.
    Raises UserError for a file that is missing (and says how to get it), several where one is
    meant, content that is not JSON, and a catalogue without a single product.
    """
    if place is None:
        products, instructions = stock()
        return build_catalogue(products, instructions, {}, "interlat's own catalogue")
    folder = place if place.is_dir() else place.parent
    file = _only(folder, PRODUCTS, "task.data") if place.is_dir() else place
    instructions = _read(_only(folder, INSTRUCTIONS, "task.data"))
    human_files = _found(folder, HUMAN_INSTRUCTIONS)
    human = _read(_only(folder, HUMAN_INSTRUCTIONS, "task.data")) if human_files else {}
    for content in (instructions, human):
        if not isinstance(content, dict):
            raise UserError(f"{folder}: instructions must be a JSON object with asins as keys")
    return build_catalogue(_products(file), instructions, human, str(file))


def build_catalogue(
    products: Iterable[Any],
    instructions: Mapping[str, Any],
    human: Mapping[str, Any],
    name: str,
) -> Catalogue:
    """A catalogue from decoded records. name: what they are called in warnings and errors."""
    read: dict[str, Product] = {}
    synthetic: dict[str, Request] = {}
    said: dict[str, tuple[Request, ...]] = {}
    left_out: list[str] = []
    for number, record in enumerate(products, start=1):
        try:
            product = _product(record, instructions)
            if product.asin in read:
                raise _Malformed(f"asin {product.asin} comes twice")
            read[product.asin] = product
            request = _synthetic(instructions.get(product.asin))
            if request is not None:
                synthetic[product.asin] = request
            requests = tuple(_human(human.get(product.asin)))
            if requests:
                said[product.asin] = requests
        except _Malformed as error:
            left_out.append(f"product {number}: {error}")
    if left_out:
        named = "; ".join(left_out[:NAMED]) + ("; ..." if len(left_out) > NAMED else "")
        _log.warning("%s: %d left out: %s", name, len(left_out), named)
    if not read:
        raise UserError(f"{name}: there is no usable product; {'; '.join(left_out[:NAMED])}")
    return Catalogue(read, synthetic, said, tuple(left_out))


def _product(record: Any, instructions: Mapping[str, Any]) -> Product:
    if not isinstance(record, dict):
        raise _Malformed("not a JSON object")
    asin = _text(record, "asin", absent=False)
    if not 0 < len(asin) <= LONGEST_ASIN or asin == "nan":
        raise _Malformed(f"asin {asin[:40]!r} is no product id")
    known = instructions.get(asin)
    attributes = known.get("attributes", ()) if isinstance(known, dict) else ()
    features = record.get("small_description") or ()
    if isinstance(features, str):
        features = (features,)
    return Product(
        asin=asin,
        title=_text(record, "name", absent=False),
        category=_text(record, "category"),
        query=_text(record, "query").lower().strip(),
        path=tuple(p.strip() for p in _text(record, "product_category").split("›")),
        description=_text(record, "full_description"),
        features=_texts(features, "small_description"),
        options=_options(record.get("customization_options")),
        attributes=_texts(attributes, "attributes"),
        prices=_prices(record.get("pricing")),
        rating=str(record.get("Rating") or "N.A."),
        reviews=tuple(_reviews(record.get("Reviews") or ())),
    )


def _text(record: Mapping[str, Any], key: str, *, absent: bool = True) -> str:
    """A text, empty where the key is absent or null if that may be."""
    value = record.get(key)
    if value is None and absent:
        return ""
    if not isinstance(value, str):
        raise _Malformed(f"{key!r} must be text, found {value!r:.40}")
    return value


def _texts(values: Any, key: str) -> tuple[str, ...]:
    if not isinstance(values, list | tuple) or not all(isinstance(v, str) for v in values):
        raise _Malformed(f"{key!r} must be a list of texts, found {values!r:.40}")
    return tuple(values)


def _prices(pricing: Any) -> tuple[float, ...]:
    """The first two prices of "$19.99$27.99" or of [19.99, 27.99]."""
    if not pricing:
        return UNPRICED
    try:
        if isinstance(pricing, str):
            parts = pricing.split("$")[1:]
            numbers = [float(re.sub(r"[^\d.]", "", part)) for part in parts]
        else:
            numbers = [float(number) for number in pricing]
    except (TypeError, ValueError):
        raise _Malformed(f"'pricing' is no price: {pricing!r:.40}") from None
    if not numbers or not all(math.isfinite(n) and n >= 0 for n in numbers):
        raise _Malformed(f"'pricing' is no price: {pricing!r:.40}")
    return tuple(numbers[:2])


def _options(choices: Any) -> dict[str, tuple[str, ...]]:
    """Option name -> values, without the names that offer nothing."""
    if not choices:
        return {}
    if not isinstance(choices, dict):
        raise _Malformed(f"'customization_options' must be an object, found {choices!r:.40}")
    options = {}
    for name, values in choices.items():
        try:
            said = [choice["value"].strip().replace("/", " | ").lower() for choice in values or ()]
        except (TypeError, KeyError, AttributeError):
            raise _Malformed(f"option {name!r:.40} has values without a text") from None
        if values is not None:
            options[name.lower()] = tuple(said)
    return options


def _reviews(records: Iterable[Any]) -> Iterator[Review]:
    for record in records:
        if not isinstance(record, dict):
            raise _Malformed("a review is not an object")
        score = record.get("score", record.get("stars", ""))
        body = record.get("body", record.get("review", ""))
        yield Review(str(record.get("title", "")), str(score), str(body))


def _synthetic(record: Any) -> Request | None:
    if not isinstance(record, dict) or not record.get("instruction"):
        return None
    attributes = _texts(record.get("instruction_attributes"), "instruction_attributes")
    if not attributes:
        raise _Malformed("an instruction without 'instruction_attributes'")
    return Request(_text(record, "instruction", absent=False), attributes, None)


def _human(records: Any) -> Iterator[Request]:
    """The instructions that name an attribute; others say too little to be judged."""
    for record in records or ():
        if not isinstance(record, dict):
            raise _Malformed("a human instruction is not an object")
        attributes = _texts(record.get("instruction_attributes"), "instruction_attributes")
        if attributes:
            options = _texts(record.get("instruction_options", ()), "instruction_options")
            text = _text(record, "instruction", absent=False)
            yield Request(text.strip("."), attributes, options)


def _only(folder: Path, patterns: Sequence[str], setting: str) -> Path:
    """The one file of a folder that fits. Raises UserError for none and for several."""
    files = _found(folder, patterns)
    wanted = " or ".join(patterns)
    if not files:
        raise UserError(f"{setting}: {folder} has no {wanted} (.xz, .gz); {SOURCE}")
    if len(files) > 1:
        names = ", ".join(file.name for file in files)
        raise UserError(
            f"{setting}: {folder} has several of {wanted}: {names}; keep one in the folder"
        )
    return files[0]


def _found(folder: Path, patterns: Sequence[str]) -> list[Path]:
    ends = ("", *_OPEN)
    return sorted(path for p in patterns for end in ends for path in folder.glob(p + end))


def _lines(file: Path) -> Iterator[str]:
    try:
        with _OPEN.get(file.suffix, open)(file, "rt", encoding="utf-8") as content:  # type: ignore[operator]
            yield from content
    except FileNotFoundError:
        raise UserError(f"task.data: {file}: no such file; {SOURCE}") from None
    except (OSError, EOFError, lzma.LZMAError, UnicodeDecodeError) as error:
        raise UserError(f"task.data: {file} cannot be read: {error}") from None


def _read(file: Path) -> Any:
    try:
        return json.loads("".join(_lines(file)))
    except json.JSONDecodeError as error:
        raise UserError(f"task.data: {file} is not valid JSON: {error}") from None


def _products(file: Path) -> Iterator[Any]:
    """The product records of a file; a line that is not JSON comes as it is, a text."""
    if ".jsonl" not in file.suffixes:
        records = _read(file)
        if not isinstance(records, list):
            raise UserError(f"task.data: {file}: expected a list of products")
        yield from records
        return
    for line in _lines(file):
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            yield line
        else:
            inner = isinstance(record, dict) and "product" in record
            yield record["product"] if inner else record
