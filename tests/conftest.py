"""What holds the workers of `make test` together: the order of the files, and a folder that they share."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from tests import shared

# A file is given to one worker whole, and the longest have to start first. By the seconds of CPU that each
# takes; one that is not here takes less than the last of these.
LONGEST = (
    "tests/test_docs.py",
    "tests/test_evidence.py",
    "tests/test_cases.py",
    "tests/test_trace.py",
    "tests/test_bad_input.py",
    "tests/test_explain.py",
    "tests/test_published_edits.py",
    "tests/test_conformance.py",
    "tests/test_workflows.py",
    "tests/test_build.py",
    "tests/test_run_command.py",
    "tests/model/test_instructions.py",
    "tests/store/test_properties.py",
    "tests/render/test_render_browser.py",
    "tests/test_bisect.py",
    "tests/render/test_real_pages.py",
    "tests/model/test_agreement.py",
    "tests/test_packaging.py",
    "tests/test_build_cli.py",
    "tests/test_codegen.py",
    "tests/test_bundled_suite.py",
    "tests/test_toolchains_install.py",
    "tests/test_bless.py",
    "tests/store/test_check.py",
)


@pytest.fixture(scope="session", autouse=True)
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """`shared.folder()` lies beside the workers' own folders, and goes with them."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "shared"
    folder.mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(shared.NAME, str(folder))
        yield


def pytest_configure() -> None:
    """A shell's background job ignores Ctrl-C, and so would all that tests start and end by it."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.nodeid.partition("::")[0], len(places)))
