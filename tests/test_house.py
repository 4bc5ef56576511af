"""What holds for the whole tree: names that exist, an error tree that is true, imports that point down, clean words."""

from __future__ import annotations

import ast
import builtins
import configparser
import functools
import gc
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import sparkcrypt
from sparkcrypt import errors
from tests.services.installed import ROOT
from tools import measure_house

PACKAGE = ROOT / "sparkcrypt"
MODULES = sorted(path.relative_to(ROOT) for path in PACKAGE.rglob("*.py"))
CONF = sorted((ROOT / "conf").glob("*.yaml"))
JAVA_SOURCES = sorted(path.relative_to(ROOT) for path in (ROOT / "jars" / "extension").rglob("*.java"))
JAVA_COMMENT = r"/\*.*?\*/|//[^\n]*"
JAVA_TEXT = r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\])\''
TREE_LINE = re.compile(r"^    (?P<indent>[│├└─ ]*)(?P<name>[A-Z]\w+)\s+(?P<code>\d+)", re.MULTILINE)

THIRD_PARTY = {
    "airflow": {"airflow"},
    "boto3": {"keys.cloud"},
    "azure": {"keys.cloud"},
    "botocore": {"keys.cloud"},
    "click": {"cli"},
    "cryptography": {"files.orc", "files.parquet", "keys"},
    "fsspec": {"files"},
    "google": {"keys.cloud"},
    "hvac": {"keys.vault"},
    "isal": {"files.parquet.pages"},
    "jinja2": {"runs.passes.html"},
    "numpy": {"calendars", "files.orc.read"},
    "obstore": {"ledger.state.object_store"},
    "openlineage": {"runs.passes.run_events"},
    "pandas": {"spark", "arrow"},
    "py4j": {"spark"},
    "pyrage": {"keys.local.keystore"},
    "pyarrow": {"arrow", "files", "skipping", "spark"},
    "pyspark": {"spark"},
    "requests": {"keys"},
    "requests_kerberos": {"keys.hadoop"},
    "rich": {"cli"},
    "urllib3": {"keys"},
    "yaml": {"policy.load"},
}
"""Which part of the package may import what it did not write; a name that is not here is imported nowhere."""

LONG_MODULE = 700
SAYS_WHY = re.compile(r"\b(?:because|since|so that)\b")

HOLDERS = ["sparkcrypt/runs/table/open_table.py: SessionUnderPolicy"]
"""The classes that hold both a Spark session and a policy."""

JAVA_ROOMS = (
    "entry",
    "skipping",
    "writes",
    "reads",
    "lineage",
    "tables",
    "bridge/files",
    "bridge/policy",
    "events",
    "bridge/helper",
    "catalyst",
    "bridge/frame",
)
"""Folders of the jar's sources from the top; a class names classes of its own folder and of those below it."""

BUILT_IN_ERRORS = {
    name for name, kind in vars(builtins).items() if isinstance(kind, type) and issubclass(kind, Exception)
}

BRIDGE_START = """
import sys
from importlib import import_module
for name in sys.argv[1:]:
    import_module(name)
print(*sorted({name.partition(".")[0] for name in sys.modules}))
"""


@pytest.fixture(scope="module", autouse=True)
def trees() -> Iterator[None]:
    """Every file is parsed once for all tests of this module; a million nodes are not looked through for garbage."""
    gc.disable()
    yield
    for cached in (_parsed, _tracked_texts, _package):
        cached.cache_clear()
    gc.enable()


def _python_sources(*folders: str) -> list[Path]:
    return sorted(path.relative_to(ROOT) for folder in folders for path in (ROOT / folder).rglob("*.py"))


@functools.cache
def _tracked_texts() -> dict[Path, str]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        pytest.skip("this tree is no git checkout, so its own files cannot be told from others")
    files = [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]
    own = Path(__file__).resolve()
    texts = [file for file in files if file != own and file.suffix not in {".parquet", ".jar", ".sum"}]
    return {file.relative_to(ROOT): file.read_text(errors="replace") for file in texts}


@functools.cache
def _parsed(module: Path) -> ast.Module:
    """Parse a file of the tree, which must not use syntax that is newer than Python 3.10."""
    return ast.parse((ROOT / module).read_text(), filename=str(module), feature_version=(3, 10))


def _imports(module: Path) -> Iterator[str]:
    tree = _parsed(module)
    types_only = {id(node) for block in ast.walk(tree) if _is_for_types(block) for node in ast.walk(block)}
    for node in ast.walk(tree):
        if id(node) in types_only:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module


def _java_code(source: Path) -> str:
    """Return a Java source with its lines, but without comments, and with empty texts."""
    return re.sub(
        f"{JAVA_TEXT}|{JAVA_COMMENT}",
        lambda match: "\n" * match[0].count("\n") if match[0][0] == "/" else '""',
        (ROOT / source).read_text(),
        flags=re.DOTALL,
    )


def _java_comments(source: Path) -> Iterator[tuple[int, str]]:
    """Yield the comments of a Java source, each with the number of its first line."""
    text = (ROOT / source).read_text()
    for match in re.finditer(f"{JAVA_TEXT}|{JAVA_COMMENT}", text, re.DOTALL):
        if match[0][0] == "/":
            yield text.count("\n", 0, match.start()) + 1, re.sub(r"\n\s*\*", "\n", match[0])


def _dotted(module: Path) -> str:
    parts = module.with_suffix("").parts[1:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def _tree(base: type[errors.SparkcryptError]) -> Iterator[type[errors.SparkcryptError]]:
    yield base
    for child in base.__subclasses__():
        yield from _tree(child)


@pytest.mark.parametrize("name", dir(sparkcrypt))
def test_every_exported_name_exists(name: str) -> None:
    """What ``dir`` shows can be imported."""
    assert getattr(sparkcrypt, name) is not None


def test_type_checkers_know_the_exported_names() -> None:
    """What is imported for them alone is what ``dir`` shows; by ``__all__``, ``help`` would show each whole."""
    known = re.findall(r"^    from \S+ import (\w+) as \1$", Path(sparkcrypt.__file__).read_text(), re.MULTILINE)
    assert sorted([*known, "__version__"]) == dir(sparkcrypt)


def test_a_name_that_is_not_exported_is_an_attribute_error() -> None:
    """A misspelt name fails as in any module, and says which."""
    with pytest.raises(AttributeError, match="encrypt_tabel"):
        _ = sparkcrypt.encrypt_tabel


def test_the_version_is_the_one_that_is_installed() -> None:
    """The package's own version and the distribution's are one."""
    configuration = configparser.ConfigParser()
    configuration.read(ROOT / "setup.cfg")
    assert sparkcrypt.__version__ == configuration["metadata"]["version"]


def test_the_error_tree_in_the_docstring_is_true() -> None:
    """The tree that is drawn names every error, under its real parent, with its real exit code."""
    drawn: dict[str, tuple[str, int]] = {}
    path: list[str] = []
    for line in TREE_LINE.finditer(errors.__doc__ or ""):
        depth = (len(line["indent"]) + 3) // 4
        path[depth:] = [line["name"]]
        drawn[line["name"]] = (path[depth - 1] if depth else "Exception", int(line["code"]))
    real = {
        kind.__name__: (kind.__base__.__name__, kind.exit_code)
        for kind in _tree(errors.SparkcryptError)
        if kind.__base__
    }
    assert drawn == {name: value for name, value in real.items() if hasattr(errors, name)}


def test_every_error_is_in_the_one_tree() -> None:
    """No module but ``errors`` defines a public exception whose base is Python's own."""
    strays = []
    for module in MODULES:
        classes = [node for node in ast.walk(_parsed(module)) if isinstance(node, ast.ClassDef)]
        for node in classes:
            bases = {base.id for base in node.bases if isinstance(base, ast.Name)}
            if bases & BUILT_IN_ERRORS and not node.name.startswith("_") and module.name != "errors.py":
                strays.append(f"{module}: {node.name}")
    assert strays == []


def test_every_folder_of_the_package_is_a_package() -> None:
    """A folder without ``__init__.py`` would be missing from the wheel and from the import contract."""
    folders = {module.parent for module in MODULES}
    assert [str(folder) for folder in sorted(folders) if not (ROOT / folder / "__init__.py").exists()] == []


@pytest.mark.slow
def test_imports_point_down() -> None:
    """The import contract of pyproject.toml holds, every module in its layer."""
    linter = Path(sys.executable).with_name("lint-imports")
    result = subprocess.run([linter, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout


def test_java_classes_name_those_below_them() -> None:
    """Java's compiler does not see the folders, since all classes are of one package."""
    sources = [ROOT / source for source in JAVA_SOURCES]
    rooms = {source.stem: source.parent.relative_to(ROOT / "jars" / "extension").as_posix() for source in sources}
    assert set(rooms.values()) == set(JAVA_ROOMS)
    upwards = []
    for source in sources:
        code = _java_code(source)
        imported = set(re.findall(r"^import .*\.(\w+);", code, re.MULTILINE))
        for name in (set(re.findall(r"(?<![\w.])[A-Z]\w*", code)) & rooms.keys()) - imported:
            if JAVA_ROOMS.index(rooms[name]) < JAVA_ROOMS.index(rooms[source.stem]):
                upwards.append(f"{rooms[source.stem]}/{source.name} names {rooms[name]}/{name}")
    assert upwards == []


def test_sql_cannot_call_static_methods_of_the_jar() -> None:
    """SQL calls public static methods of any class with texts and numbers (reflect).

    Therefore all classes are of one package, whatever their folder, and a public static method takes an object.
    """
    texts_and_numbers = {"String", "boolean", "byte", "short", "int", "long", "float", "double"}
    for source in (ROOT / "jars" / "extension").rglob("*.java"):
        code = source.read_text()
        assert code.startswith("package io.sparkcrypt;\n"), source
        for method in re.finditer(r"public static [^;={]*\(([^)]*)\)", code):
            taken = {parameter.split()[0] for parameter in method[1].split(",") if parameter.strip()}
            assert taken - texts_and_numbers, f"{source.name}: SQL can call {method[0]}"


def test_third_party_libraries_are_imported_where_they_belong() -> None:
    """A library that is not Python's own is imported by the parts that are named for it, lazily or not."""
    elsewhere = []
    for module in MODULES:
        name = _dotted(module)
        for imported in _imports(module):
            top = imported.partition(".")[0]
            if top not in sys.stdlib_module_names and top != "sparkcrypt":
                owners = THIRD_PARTY.get(top, set())
                if not any(f"{name}.".startswith(f"{owner}.") for owner in owners):
                    elsewhere.append(f"{module} imports {imported}")
    assert elsewhere == []


def test_the_helper_starts_with_the_standard_library_alone() -> None:
    """What runs from the jar imports nothing that an interpreter on an executor may lack."""
    above = ("bridge", "decide", "access", "keys", "plan", "policy", "tags", "schema")
    parts = (*above, "paths", "names", "text", "durable", "errors")
    modules = [f"sparkcrypt.{name}" for name in map(_dotted, MODULES) if name.partition(".")[0] in parts]
    later = re.compile(r"__main__$|policy\.load$|keys\.(vault|cloud|hadoop|rest)")
    start = [name for name in modules if not later.search(name)]
    result = subprocess.run(
        [sys.executable, "-c", BRIDGE_START, *start], cwd=ROOT, capture_output=True, text=True, check=True
    )
    foreign = set(result.stdout.split()) & (set(THIRD_PARTY) - {"cryptography"})
    assert foreign == set()


def test_modules_say_why_they_exist() -> None:
    """Each module says so in its first line, and one of more than 700 lines also why it is no two."""
    first_lines = {module: (ast.get_docstring(_parsed(module)) or "").partition("\n")[0] for module in MODULES}
    assert [module for module, line in first_lines.items() if _parsed(module).body and not line] == []
    long = [module for module in MODULES if (ROOT / module).read_text().count("\n") > LONG_MODULE]
    assert [module for module in long if not SAYS_WHY.search(first_lines[module])] == []


@functools.cache
def _package() -> dict[Path, ast.Module]:
    return measure_house.read_modules(PACKAGE)


def test_functions_have_few_parameters() -> None:
    """No function of the package has more than six."""
    assert [f"{path}: {function}" for path, function, _ in measure_house.find_long_signatures(_package())] == []


def test_no_class_holds_both_spark_and_the_policy() -> None:
    """One class does; `OpenTable`, with which a pass works, is one, and `Table`, with which people work, has one."""
    found = measure_house.find_holders(_package())
    assert [f"{path.relative_to(ROOT).as_posix()}: {holder}" for path, holder in found] == HOLDERS


def test_small_modules_have_several_importers() -> None:
    """A module below 80 lines that one other imports is a part of that one."""
    assert [name for name, _ in measure_house.find_thin_modules(ROOT, _package())] == []


@pytest.mark.parametrize(
    ("pattern", "what"),
    [
        (r"/(?:root|home|work|Users)/\w+", "a path of one machine"),
        (r"\b(?:files\.)?(?:pypi|pythonhosted|npmjs)\.(?:org|com)\b", "a host of a package registry"),
        (r"\b(?:repo1?\.maven|proxy\.golang|deb\.debian|archive\.ubuntu)\.\w+", "a host of a package registry"),
        (r"\.\./shared\b", "a folder outside the project"),
        (r"\b(?:TODO|FIXME|XXX)\b", "a promise instead of the work"),
    ],
)
def test_the_tree_speaks_of_the_project_alone(pattern: str, what: str) -> None:
    """No file names what belongs to one machine or to a package registry, or leaves work for later."""
    found = []
    for path, text in _tracked_texts().items():
        found += [f"{path}: {match[0]} ({what})" for match in re.finditer(pattern, text)]
    assert found == []


def test_every_test_says_what_it_shows() -> None:
    """Each test function has a docstring of one sentence or more."""
    silent = []
    for path in _python_sources("tests"):
        for node in ast.walk(_parsed(path)):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_") and not ast.get_docstring(node):
                silent.append(f"{path}: {node.name}")
    assert silent == []


def _imported_modules(path: Path) -> Iterator[str]:
    """Name what a file of tests imports, with each name that it takes from a module, which may be a module too."""
    package = path.parent.parts
    for node in ast.walk(_parsed(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) + 1 - node.level] if node.level else ()
            module = ".".join((*above, *([node.module] if node.module else [])))
            yield from (module, *(f"{module}.{alias.name}" for alias in node.names))


def test_no_test_module_is_imported() -> None:
    """What several test modules need is in a module of its own, or in a conftest.py."""
    lent = []
    for path in _python_sources("tests"):
        for name in _imported_modules(path):
            if re.fullmatch(r"tests\.(\w+\.)*test_\w+", name) and (ROOT / f"{name.replace('.', '/')}.py").is_file():
                lent.append(f"{path}: {name}")
    assert lent == []


def test_every_source_parses_on_the_oldest_python() -> None:
    """No file uses syntax that is newer than Python 3.10."""
    for path in _python_sources("sparkcrypt", "jobs", "demo", "bench", "tests", "jars", "tools"):
        _parsed(path)


PAGES = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
CODE = re.compile(r"```.*?```|`[^`\n]*`|\]\([^)\s]*\)", re.DOTALL)
JAVA_CODE = re.compile(r"\{@(?:code|link) [^}]*\}|<code>.*?</code>|`[^`\n]*`|@param \w+", re.DOTALL)
ALLOWED_PHRASES = re.compile(r"(?:state|key)[ _]director(?:y|ies)|INSERT DIRECTORY", re.IGNORECASE)
"""Directories that are called so: where state is kept, and where the local key service keeps its keys."""
ALLOWED_NAMES = frozenset(
    {"IsADirectoryError", "NotADirectoryError", "O_DIRECTORY", "isDirectory", "Directory"}  # Python, pyarrow, Hadoop
    | {"check_local_directory", "passed_over"}  # of backfill, the second a key of reports
)
ALLOWED_IN = frozenset(
    {"sparkcrypt/keys/local/keystore.py", "sparkcrypt/keys/local/service.py", "sparkcrypt/cli/setup/doctor.py"}
)
"""Modules about the local key directory, and the check of the state directory."""
RECORDED = frozenset({"new directory", "carry over"})
"""What reports call a swap, and audits a step."""


def _glossary() -> dict[str, tuple[str, ...]]:
    """Return the terms of the glossary, and the words that are not used for each."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    section = text.partition("## Concepts\n")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:1] == "|"]
    return {term: tuple(filter(None, words.split(", "))) for term, _, words in rows[2:]}


@functools.cache
def _ruled_out() -> re.Pattern[str]:
    """Return what finds the words that the glossary rules out, as plurals too, in texts and in names of code."""
    words = [word for words in _glossary().values() for word in words]
    forms = [re.escape(word).replace(r"\ ", "[ _]").replace(r"\-", "[-_]") for word in words]
    forms = [f"{form[:-1]}(?:y|ies)" if form.endswith("y") else f"{form}s?" for form in forms]
    return re.compile(rf"(?<![A-Za-z])(?:{'|'.join(forms)})(?![A-Za-z])", re.IGNORECASE)


def test_the_glossary_defines_each_term_once() -> None:
    """Every term has a line, and no word that is ruled out is itself a term."""
    glossary = _glossary()
    assert len(glossary) > 20
    assert [word for words in glossary.values() for word in words if word in glossary] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_docs_use_the_words_of_the_glossary(page: Path) -> None:
    """Outside of code quotes no page uses a word that the glossary rules out."""
    text = page.read_text()
    if page.name == "architecture.md":
        before, _, rest = text.partition("## Concepts\n")
        text = before + rest.partition("\n## ")[2]
    prose = ALLOWED_PHRASES.sub("", CODE.sub("", text))
    assert [match[0] for match in _ruled_out().finditer(prose)] == []


def test_the_tour_names_what_is_there() -> None:
    """Each module and folder of the tour exists, by its path or, within a section about its folder, by its name."""
    named = re.findall(r"`((?:\w+/)*\w+\.py|(?:\w+/)+)`", (ROOT / "docs" / "architecture.md").read_text())
    files = {module.name for module in MODULES}
    there = [(ROOT / "sparkcrypt" / name).exists() or (ROOT / name).exists() or name in files for name in named]
    assert [name for name, exists in zip(named, there, strict=True) if not exists] == []


def test_names_use_the_words_of_the_glossary() -> None:
    """No function, class, argument, variable or attribute is named by a word that the glossary rules out."""
    found = []
    for module in MODULES:
        if str(module) not in ALLOWED_IN:
            nodes = ast.walk(_parsed(module))
            names = {str(getattr(node, field, None)) for node in nodes for field in ("name", "arg", "id", "attr")}
            ruled_out = [name for name in names - ALLOWED_NAMES if _ruled_out().search(ALLOWED_PHRASES.sub("", name))]
            found += [f"{module}: {name}" for name in ruled_out]
    assert found == []


def test_texts_use_the_words_of_the_glossary() -> None:
    """No docstring, help or message has a word that the glossary rules out; values of records keep theirs."""
    found = []
    for module in MODULES:
        texts = [node for node in ast.walk(_parsed(module)) if isinstance(node, ast.Constant)]
        for node in texts if str(module) not in ALLOWED_IN else ():
            if isinstance(node.value, str) and " " in node.value and node.value not in RECORDED:
                prose = ALLOWED_PHRASES.sub("", CODE.sub("", node.value.replace("``", "`"))).replace("passed_over", "")
                found += [f"{module}:{node.lineno}: {match[0]}" for match in _ruled_out().finditer(prose)]
    assert found == []


def test_comments_of_the_jar_use_the_words_of_the_glossary() -> None:
    """No comment of a Java source has a word that the glossary rules out, outside of code quotes."""
    found = []
    for source in JAVA_SOURCES:
        for line, comment in _java_comments(source):
            prose = ALLOWED_PHRASES.sub("", JAVA_CODE.sub("", comment))
            found += [f"{source}:{line}: {match[0]}" for match in _ruled_out().finditer(prose)]
    assert found == []


@pytest.mark.parametrize("example", CONF, ids=lambda path: path.name)
def test_every_example_policy_loads(example: Path) -> None:
    """An annotated example under conf/ is a policy as it stands."""
    policy = sparkcrypt.load_policy(example)
    assert policy.tags


_MARKED = "import pytest\n@pytest.mark.{mark}(reason='no such service')\ndef test_it():\n    raise OSError\n"
_FIXTURE = "@pytest.fixture\ndef it():\n    pytest.skip('no such service')\n"
SKIPS = {
    "a test": ("skipped", "import pytest\ndef test_it():\n    pytest.skip('no such service')\n"),
    "a fixture": ("skipped", f"import pytest\n{_FIXTURE}def test_it(it):\n    pass\n"),
    "a mark": ("skipped", _MARKED.format(mark="skip")),
    "an expected failure": ("xfailed", "import pytest\ndef test_it():\n    pytest.xfail('no such service')\n"),
    "a mark that expects failure": ("xfailed", _MARKED.format(mark="xfail")),
    "a module": ("skipped", "import pytest\npytest.importorskip('no_such_service', reason='no such service')\n"),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", SKIPS)
@pytest.mark.parametrize("required", ["0", "1"])
def test_a_skip_is_a_failure_where_services_are_required(tmp_path: Path, required: str, what: str) -> None:
    """What cannot be tested skips on a developer's machine and fails where everything must be there."""
    word, text = SKIPS[what]
    (tmp_path / "test_it.py").write_text(text)
    outcome = f"1 {word}" if required == "0" else "1 failed"
    if required == "1" and what in ("a module", "a mark", "a fixture"):
        outcome = "1 error"
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "--rootdir", tmp_path, tmp_path],
        cwd=tmp_path,
        env={**os.environ, "SPARKCRYPT_REQUIRE_SERVICES": required, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert outcome in result.stdout
    assert "no such service" in result.stdout or required == "0"
