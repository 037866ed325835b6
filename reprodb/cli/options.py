"""Options that mean the same in every command."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from reprodb.policy import Project


def _project() -> "Project":
    """What the current folder's reprodb.toml says about where things are."""
    from reprodb.policy import FILE_NAME, Project, load_policy

    file = Path(FILE_NAME)
    return load_policy(file).project if file.is_file() else Project()


def own_suite(named: Path | None) -> Path | None:
    """The suite that was named, else the repository's own; None where the bundled one is meant."""
    own = None if named else _project().suite
    return Path(own) if own else named


def own_suites(named: list[Path] | None) -> list[Path] | None:
    own = None if named else own_suite(None)
    return [own] if own else named


def own_profiles(named: Path | None) -> Path | None:
    """The profiles file that was named, else the repository's own; None where the bundled one is meant."""
    own = None if named else _project().profiles
    return Path(own) if own else named


SuiteOption = Annotated[
    Path | None,
    typer.Option(
        "--suite",
        metavar="PATH",
        callback=own_suite,
        help="Folder of kernels; reprodb.toml's, else the bundled suite.",
    ),
]
ProfilesFileOption = Annotated[
    Path | None,
    typer.Option(
        "--profiles-file",
        metavar="FILE",
        callback=own_profiles,
        help="Build profiles; reprodb.toml's, else the bundled file.",
    ),
]
KernelOption = Annotated[
    list[str] | None, typer.Option("--kernel", metavar="NAME", help="Only these kernels (repeatable, globs).")
]
TagOption = Annotated[
    list[str] | None,
    typer.Option(
        "--tag",
        metavar="TAG",
        help="Only kernels with this tag (repeatable); quick and full in the bundled suite.",
    ),
]
ProfileOption = Annotated[
    list[str] | None,
    typer.Option("--profile", metavar="NAME", help="Only these profiles (repeatable, globs)."),
]
RequireOption = Annotated[
    list[str] | None,
    typer.Option("--require", metavar="PROFILE", help="Fail if this profile has no toolchain."),
]
RepetitionsOption = Annotated[
    int, typer.Option("--repetitions", "-n", min=1, max=1_000_000, help="Executions of each kernel.")
]
DeviceOption = Annotated[
    str, typer.Option("--device", metavar="auto|gpu|model|cpu|INDEX", help="Where kernels run.")
]
DatabaseOption = Annotated[
    str | None,
    typer.Option(
        "--db", metavar="URL", envvar="REPRODB_DB", help="Database file or URL; reprodb.db by default."
    ),
]
StoreOption = Annotated[
    Path | None, typer.Option("--store", metavar="FOLDER", help="Artifact store; builds/store by default.")
]
OutOption = Annotated[Path, typer.Option("--out", metavar="FOLDER", help="Where reports are written.")]
LabelOption = Annotated[str | None, typer.Option("--label", metavar="TEXT", help="A name for the run.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else on standard output.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Print only the verdict and errors.")]
TimeoutOption = Annotated[
    float, typer.Option("--timeout", metavar="SECONDS", min=0.1, help="Limit a result.")
]
TimingsOption = Annotated[bool, typer.Option("--timings", help="Say at the end where the time went.")]
JobsOption = Annotated[
    int | None, typer.Option("--jobs", "-j", min=1, help="Parallel processes; all cores by default.")
]
ArchOption = Annotated[
    str | None, typer.Option("--arch", metavar="sm_XX", help="Instead of the profile's architecture.")
]
PolicyOption = Annotated[
    Path | None,
    typer.Option("--policy", metavar="FILE", help="What gates; reprodb.toml by default, where there is one."),
]
LedgerOption = Annotated[
    Path | None, typer.Option("--ledger", metavar="FILE", help="Blessings; reprodb.lock by default.")
]
JunitOption = Annotated[
    Path | None, typer.Option("--junit", metavar="FILE", help="Write the comparisons as JUnit XML too.")
]
