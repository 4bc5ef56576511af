"""Every type, codec and writer of ORC: encrypted natively, proven, read by ORC's Java reader and by `open_orc`."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import pyarrow as pa
import pyarrow.orc
import pytest

from sparkcrypt.arrow import open_orc
from sparkcrypt.decide.identity import FileIdentity
from sparkcrypt.errors import UnsupportedFileError
from sparkcrypt.files.orc import OrcEncryption, OrcKey, inspect_orc, read_tail, rewrite_orc, verify_orc
from sparkcrypt.files.orc.file.encryption import Encryption
from sparkcrypt.files.parquet import KeyRequest
from sparkcrypt.keys.datakeys import DataKeyMaker
from sparkcrypt.policy.model import Policy
from sparkcrypt.schema import join_dotted, split_dotted
from tests.spark.support import key_service, make_policy, retriever
from tests.unit.orc.generated import CODECS as ARROW_CODECS
from tests.unit.orc.generated import TYPES
from tests.unit.orc.java_orc import CODECS, SCHEMA, JavaOrc, ReadColumn, WriteOrder, key_lines
from tests.unit.orc.rewriting import clear_parts

pytestmark = pytest.mark.slow  # two Java processes
ROWS, STRIPE_ROWS = 3500, 2500
STRIDES = {
    "java": {"row groups": 1000, "stride 0": 0},
    "arrow": {"row groups": 200, "one row group": 100_000},
    "pyorc": {"stride 0": 0},
}
SHAPES = "struct<id:bigint,name:string>;geo:geometry;place:geography;more:geometry"
WHOLE = "whole columns"
BELOW = {
    "java": ["st.x", "st.deep", "li._elem.num", "kv._value", "un.1"],
    "arrow": ["st.x", "li._elem", "kv._value"],
    "pyorc": ["st.x", "st.deep", "li._elem.num", "kv._value", "un.1"],
}
"""Columns below others, some of which are null above them; the rest is encrypted whole beside them."""
NOT_DECODED: dict[str, dict[str, str]] = {"java": {"kv": "null", "un": "union"}, "arrow": {}, "pyorc": {"un": "union"}}
"""Columns that are encrypted and proven as all others, and that `open_orc` refuses by name: a map with null keys, of
which pyarrow's own reader dies, and a union."""
FILES = Path(__file__).parent / "files"
"""Has files of ORC's C++ writer without row indexes, which pyarrow's binding of it refuses to make."""


@dataclass(frozen=True)
class Cell:
    """One file of the matrix, plain and as it was encrypted."""

    writer: str
    codec: str
    layout: str
    depth: str
    source: Path
    encrypted: Path
    columns: tuple[str, ...]
    rows: int

    def __str__(self) -> str:
        return f"{self.writer}, {self.codec}, {self.layout}, {self.depth}"


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Policy:
    """A policy of two keys."""
    return make_policy(tmp_path_factory.mktemp("policy"), "\n  pii: {key: pii}\n  fin: {key: fin}\n")


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaOrc]:
    """Writer and reader of ORC's Java code, compiled."""
    with JavaOrc(tmp_path_factory.mktemp("java")) as program:
        yield program


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory, policy: Policy, java: JavaOrc) -> list[Cell]:
    """Every file, written and encrypted, which is its first half of the way."""
    folder = tmp_path_factory.mktemp("cells")
    places = [(codec.lower(), name) for codec in CODECS for name in STRIDES["java"]]
    sources = {("java", codec, name): folder / f"java-{codec}-{name}" for codec, name in places}
    java.write(
        [
            WriteOrder(path, SCHEMA, ROWS, STRIPE_ROWS, STRIDES["java"][name], codec.upper())
            for (_, codec, name), path in sources.items()
        ]
    )
    rows = arrow_rows()
    for codec in ARROW_CODECS:
        for name, stride in STRIDES["arrow"].items():
            path = sources["arrow", codec.replace("uncompressed", "none"), name] = folder / f"arrow-{codec}-{name}"
            options = {"stripe_size": 8192, "compression_block_size": 65_536, "batch_size": 100}
            pa.orc.write_table(rows, path, compression=codec, row_index_stride=stride, **options)
    for codec in (name.lower() for name in CODECS):
        sources["pyorc", codec, "stride 0"] = Path(shutil.copy(FILES / f"pyorc_{codec}.orc", folder / f"pyorc-{codec}"))
    made = []
    for (writer, codec, layout), path in sources.items():
        for number, depth in enumerate((WHOLE, "below others")):
            columns = choose_columns(path, [] if depth == WHOLE else BELOW[writer])
            encrypted = path.with_name(f"{path.name}-{number}")
            encrypt(path, encrypted, columns, policy)
            made.append(Cell(writer, codec, layout, depth, path, encrypted, tuple(columns), inspect_orc(path).rows))
    return made


def arrow_rows() -> pa.Table:
    """Return every type that pyarrow gives to ORC's C++ writer, with nulls in leaves and above them."""
    columns: dict[str, pa.Array] = {"id": pa.array(range(ROWS), pa.int64())}
    for name, kind in TYPES.items():
        made = pa.array([None if n % 5 == 0 else n * n * 31 % 113 for n in range(ROWS)], pa.int32())
        if pa.types.is_decimal(kind):
            made = made.cast(pa.decimal128(12, 2))
        elif pa.types.is_binary(kind):
            made = made.cast(pa.string())
        elif pa.types.is_timestamp(kind):
            made = made.cast(pa.int64())
        columns[name] = made.cast(kind)
    columns["long texts"] = pa.array([sha256(str(n).encode()).hexdigest() * 2 for n in range(ROWS)])
    columns["st"] = pa.array([None if n % 7 == 0 else {"x": n if n % 3 else None, "y": str(n)} for n in range(ROWS)])
    columns["li"] = pa.array([None if n % 6 == 0 else [n if k else None for k in range(n % 4)] for n in range(ROWS)])
    of_map = pa.map_(pa.string(), pa.int64())
    entries = [None if n % 8 == 0 else [(str(n), n if n % 3 else None)] * (n % 3) for n in range(ROWS)]
    columns["kv"] = pa.array(entries, of_map)
    return pa.table(columns)


def choose_columns(path: Path, below: list[str]) -> list[str]:
    """Return all columns of a file but ``id``, those that have others below them by these."""
    columns = read_tail(path).columns
    whole = [join_dotted(columns[number].path) for number in columns[0].children][1:]
    return [*(name for name in whole if name not in {column.split(".")[0] for column in below}), *below]


def encrypt(source: Path, target: Path, columns: list[str], policy: Policy) -> None:
    """Encrypt columns under two master keys by turns."""
    maker = DataKeyMaker(key_service(policy), data_key_bits=128)
    bound = FileIdentity(None, "", target.name).to_aad_prefix()
    made = {}
    for number, name in enumerate(columns):
        master = ("pii", "fin")[number % 2]
        made[split_dotted(name)] = OrcKey(*maker.make(master, is_footer_key=False, file_identity=bound), master)
    rewrite_orc(source, target, encryption=OrcEncryption(made))


def encryption_of(path: Path) -> Encryption:
    """Return what a file's end says of its encryption."""
    found = read_tail(path).encryption
    assert found is not None
    return found


def wrapped_keys(path: Path, policy: Policy) -> list[tuple[str, bytes, bytes]]:
    """Return master key, wrapped form and local key of each variant."""
    retrieve = retriever(policy)
    wrapped = [(variant.key.name, variant.encrypted_key) for variant in encryption_of(path).variants]
    return [(name, key, retrieve(KeyRequest(str(path), None, key))) for name, key in wrapped]


def test_each_cell_is_proven_and_goes_back(cells: list[Cell], policy: Policy, tmp_path: Path) -> None:
    """Encrypted it says what it said, in every column; decrypted it reads as at first."""
    retrieve = retriever(policy)
    assert len(cells) == sum(map(len, STRIDES.values())) * len(CODECS) * 2
    for number, cell in enumerate(cells):
        plain = verify_orc(cell.source)
        assert plain.stripes > 1, cell
        found = verify_orc(cell.encrypted, retrieve_key=retrieve, equal_to=plain.digests)
        assert {path[0] for path in found.plaintext_columns} <= {"id", "st", "li", "kv", "un"} and not found.notes, cell
        assert {variant.root.path for variant in encryption_of(cell.encrypted).variants} == {
            split_dotted(name) for name in cell.columns
        }, cell
        assert inspect_orc(cell.encrypted).rows == cell.rows > 0
        back = tmp_path / str(number)
        rewrite_orc(cell.encrypted, back, retrieve_key=retrieve)
        verify_orc(back, equal_to=plain.digests)
        names = [name for name in pa.orc.ORCFile(back).schema.names if not refuses(cell, name)]
        assert pa.orc.ORCFile(back).read(names).equals(pa.orc.ORCFile(cell.source).read(names)), cell


def refuses(cell: Cell, name: str) -> bool:
    """Tell whether pyarrow, and with it `open_orc`, has no rows of a column."""
    return name in NOT_DECODED[cell.writer]


def test_java_reads_each_cell(cells: list[Cell], policy: Policy, java: JavaOrc, tmp_path: Path) -> None:
    """In one process: with keys values, nulls and statistics are the source's; without, what is encrypted is null."""
    keys = tmp_path / "keys"
    keys.write_text(key_lines(line for cell in cells for line in wrapped_keys(cell.encrypted, policy)))
    asked = [
        (path, known)
        for cell in cells
        for path, known in ((cell.source, None), (cell.encrypted, keys), (cell.encrypted, None))
    ]
    read = iter(java.read_each(asked))
    for cell in cells:
        source, opened, masked = next(read), next(read), next(read)
        assert opened == source, cell
        check_masked(cell, source, masked)


def check_masked(cell: Cell, source: dict[str, ReadColumn], masked: dict[str, ReadColumn]) -> None:
    """See that of encrypted columns nothing is left, of those above them their nulls, and of others all."""
    for column, found in masked.items():
        if column in cell.columns:
            assert found.nulls == cell.rows, (str(cell), column)
        elif column in {path.split(".")[0] for path in cell.columns}:
            assert (found.nulls, found.digest != source[column].digest) == (source[column].nulls, True), (
                str(cell),
                column,
            )
        else:
            assert found == source[column], (str(cell), column)


def test_rows_of_each_cell_are_opened(cells: list[Cell], policy: Policy) -> None:
    """`open_orc` gives the rows of the plain file; what it has no type for it refuses by the column's name."""
    for cell in cells:
        plain = pa.orc.ORCFile(cell.source)
        names = [name for name in plain.schema.names if not refuses(cell, name)]
        assert open_orc(str(cell.encrypted), policy, names).to_table().equals(plain.read(names)), cell
        for name, why in NOT_DECODED[cell.writer].items():
            with pytest.raises(UnsupportedFileError, match=why):
                open_orc(str(cell.encrypted), policy, [name]).to_table()


def test_shapes_are_bytes(policy: Policy, java: JavaOrc, tmp_path: Path) -> None:
    """Geometry and geography are copied in clear or encrypted, proven and decrypted; `open_orc` refuses them by name.

    Their bounds are in statistics that tell nothing where they are encrypted, as in a file that Java encrypted itself.
    pyarrow opens no file that has them, so they have files of their own.
    """
    own, own_keys = tmp_path / "own", tmp_path / "own-keys"
    own_keys.write_text(key_lines([("pii", b"wrapped %d" % number, bytes([number]) * 16) for number in range(2)]))
    orders = [
        WriteOrder(tmp_path / f"{codec}-{name}", SHAPES, ROWS, STRIPE_ROWS, stride, codec)
        for codec in CODECS
        for name, stride in STRIDES["java"].items()
    ]
    java.write([*orders, WriteOrder(own, SHAPES, ROWS, STRIPE_ROWS, encrypt="pii:geo,place", keys=own_keys)])
    retrieve, lines, made = retriever(policy), [], []
    for source in (order.path for order in orders):
        encrypted, back = source.with_name(f"{source.name}-e"), source.with_name(f"{source.name}-d")
        encrypt(source, encrypted, ["geo", "place"], policy)
        rewrite_orc(encrypted, back, retrieve_key=retrieve)
        plain = verify_orc(source)
        for path in (encrypted, back):
            verify_orc(path, retrieve_key=retrieve, equal_to=plain.digests)
        with pytest.raises(UnsupportedFileError, match="column geo is of kind geometry, which is not decoded here"):
            open_orc(str(encrypted), policy)
        assert open_orc(str(encrypted), policy, ["id", "name"]).to_table().num_rows == ROWS
        lines += wrapped_keys(encrypted, policy)
        made.append((source, encrypted))
    assert clear_parts(tmp_path / "ZLIB-row groups-e") == clear_parts(own)
    keys = tmp_path / "keys"
    keys.write_text(key_lines(lines))
    read = iter(java.read_each([pair for a, e in made for pair in ((a, None), (e, keys), (e, None))]))
    for source, _ in made:
        before, opened, masked = next(read), next(read), next(read)
        assert opened == before, source
        assert ("xMax=" in opened["geo"].statistics) is ("row groups" in source.name)  # else Java writes none
        assert (masked["geo"].nulls, masked["place"].nulls, masked["more"]) == (ROWS, ROWS, before["more"]), source
        assert "bounds: null" in masked["geo"].statistics, source
