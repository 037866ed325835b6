"""Profiles: what the bundled ones are, how they inherit, and everything that is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprodb.domain import Profile
from reprodb.errors import UsageError
from reprodb.profiles import architecture, bundled_profiles, check_arch, load_profiles, select, specifier
from reprodb.toolchains import flags
from reprodb.toolchains.options import resolved


def load(tmp_path: Path, text: str) -> dict[str, Profile]:
    path = tmp_path / "profiles.toml"
    path.write_text(text)
    return load_profiles(path)


def refusal(tmp_path: Path, text: str) -> UsageError:
    with pytest.raises(UsageError) as caught:
        load(tmp_path, text)
    return caught.value


NVRTC = '[profile.a]\ncompiler = "nvrtc"\ntoolkit = ">=13"\n'


def test_the_bundled_profiles() -> None:
    profiles = load_profiles(bundled_profiles())
    assert {name: (p.compiler, p.toolkit, p.fmad, p.fast_math) for name, p in profiles.items()} == {
        "default": ("nvrtc", ">=13,<14", True, False),
        "no-fmad": ("nvrtc", ">=13,<14", False, False),
        "fast-math": ("nvrtc", ">=13,<14", True, True),
        "cuda12": ("nvrtc", ">=12,<13", True, False),
        "cuda12-no-fmad": ("nvrtc", ">=12,<13", False, False),
        "nvcc13": ("nvcc", ">=13,<14", True, False),
        "nvcc13-no-fmad": ("nvcc", ">=13,<14", False, False),
        "nvcc12": ("nvcc", ">=12,<13", True, False),
        "nvcc12-no-fmad": ("nvcc", ">=12,<13", False, False),
    }
    assert all(p.arch == "native" and p.extra == () for p in profiles.values())


def test_a_profile_inherits_and_replaces(tmp_path: Path) -> None:
    profiles = load(
        tmp_path,
        '[profile.base]\ncompiler = "nvcc"\ntoolkit = "12.*"\nftz = true\nextra = ["-lineinfo"]\n'
        '[profile.child]\nextends = "base"\nfmad = false\narch = "sm_80"\n'
        '[profile.grandchild]\nextends = "child"\nextra = ["-G"]\nfmad = true\n',
    )
    assert profiles["child"] == Profile(
        "child", "nvcc", "12.*", fmad=False, ftz=True, extra=("-lineinfo",), arch="sm_80"
    )
    assert profiles["grandchild"].extra == ("-G",)
    assert profiles["grandchild"].arch == "sm_80"
    assert profiles["grandchild"].fmad


def test_options_are_resolved_in_a_fixed_order() -> None:
    profile = Profile(
        "p", "nvcc", "13.*", fmad=False, fast_math=True, ftz=False, prec_div=True, extra=("-G",)
    )
    assert resolved(profile, "sm_90", (("BLOCKS", "1024"),)) == (
        "-arch=sm_90", "-std=c++17", "-use_fast_math", "-fmad=false", "-ftz=false", "-prec-div=true", "-G",
        "-DBLOCKS=1024",
    )  # fmt: skip


def test_a_standard_of_its_own_replaces_the_stated_one() -> None:
    options = resolved(Profile("p", "nvrtc", "13.*", extra=("-std=c++20",)), "sm_90", ())
    assert options == ("-arch=sm_90", "-fmad=true", "-std=c++20")


def test_a_define_of_profile_and_manifest_is_refused() -> None:
    with pytest.raises(UsageError, match="defines BLOCKS"):
        resolved(Profile("p", "nvrtc", "13.*", extra=("-DBLOCKS=1",)), "sm_90", (("BLOCKS", "2"),))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (NVRTC + "fmda = false\n", ["unknown key 'fmda'", "did you mean fmad", "prec_div"]),
        (NVRTC + 'fmad = "false"\n', ["fmad = 'false'", "true | false"]),
        (NVRTC + "fmad = 0\n", ["fmad = 0", "true | false"]),
        (NVRTC + 'extra = "-G"\n', ["extra = '-G'", "a list of flags"]),
        (NVRTC + "extra = [1]\n", ["extra flag 1 is no string"]),
        (NVRTC + 'extra = ["-o x"]\n', ["[profile.a]", "'-o x' is refused"]),
        (NVRTC + 'arch = "compute_90"\n', ["arch = 'compute_90'", "native | sm_XX"]),
        (NVRTC + 'extends = "b"\n', ["extends = 'b'", "allowed: a"]),
        ('[profile.a]\ncompiler = "nvrct"\ntoolkit = "13"\n', ["'nvrct'", "did you mean nvrtc"]),
        ('[profile.a]\ncompiler = "clang"\ntoolkit = "13"\n', ["'clang'", "nvrtc | nvcc"]),
        ('[profile.a]\ncompiler = "nvrtc"\n', ["[profile.a] has no toolkit"]),
        ('[profile.a]\ntoolkit = "13"\n', ["[profile.a] has no compiler"]),
        ('[profile.a]\ncompiler = "nvrtc"\ntoolkit = "newest"\n', ["'newest' is no version specifier"]),
        ('[profile.a]\ncompiler = "nvrtc"\ntoolkit = ""\n', ["'' is no version specifier"]),
        ('[profile.a]\ncompiler = "nvrtc"\ntoolkit = 13\n', ["toolkit = 13", "a version specifier"]),
        ('[profile."a b"]\ncompiler = "nvrtc"\ntoolkit = "13"\n', ["profile name 'a b'"]),
        ('[profile."a:b"]\ncompiler = "nvrtc"\ntoolkit = "13"\n', ["profile name 'a:b'"]),
        ("[profile]\na = 1\n", ["profile.a is no table"]),
        ('[default]\ncompiler = "nvrtc"\n', ["unknown table [default]", "write [profile.default]"]),
        ("", ["no profiles"]),
        ("[profile.a\n", ["is not TOML"]),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(tmp_path: Path, text: str, said: list[str]) -> None:
    message = str(refusal(tmp_path, text))
    assert "profiles.toml" in message
    for words in said:
        assert words in message


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nowhere\.toml cannot be read"):
        load_profiles(tmp_path / "nowhere.toml")


@pytest.mark.parametrize(
    ("text", "circle"),
    [
        ('[profile.a]\nextends = "a"\n', "a → a"),
        ('[profile.a]\nextends = "b"\n[profile.b]\nextends = "c"\n[profile.c]\nextends = "b"\n', "b → c → b"),
    ],
)
def test_a_circle_is_told(tmp_path: Path, text: str, circle: str) -> None:
    assert circle in str(refusal(tmp_path, text))


def test_a_child_with_another_compiler_has_its_inherited_flags_checked_again(tmp_path: Path) -> None:
    text = (
        '[profile.a]\ncompiler = "nvcc"\ntoolkit = "13"\nextra = ["-Xcompiler=-O2"]\n'
        '[profile.b]\nextends = "a"\ncompiler = "nvrtc"\n'
    )
    assert "'-Xcompiler=-O2' is refused for nvrtc" in str(refusal(tmp_path, text))


@pytest.mark.parametrize(
    ("toolkit", "inside", "outside"),
    [
        ("12.6.*", "12.6.85", "12.8.93"),
        ("12.6", "12.6.85", "12.60.1"),
        ("13", "13.5.37", "12.9.86"),
        ("12.6.85", "12.6.85", "12.6.77"),
        (">=13,<14", "13.0.48", "14.0.1"),
        ("~=12.4", "12.9.86", "13.0.48"),
    ],
)
def test_specifiers(toolkit: str, inside: str, outside: str) -> None:
    assert specifier(toolkit).contains(inside)
    assert not specifier(toolkit).contains(outside)


def test_selecting_by_name_and_glob() -> None:
    profiles = load_profiles(bundled_profiles())
    assert [p.name for p in select(profiles, ["nvcc1?", "default"])] == ["default", "nvcc13", "nvcc12"]
    assert len(select(profiles, None)) == len(select(profiles, [])) == 9
    with pytest.raises(UsageError, match=r"no profile matches 'cuda-12'") as caught:
        select(profiles, ["cuda-12"])
    assert "did you mean cuda12" in caught.value.remedy
    with pytest.raises(UsageError, match=r"no profile matches 'zzz\*'"):
        select(profiles, ["default", "zzz*"])


def test_architectures() -> None:
    assert architecture(Profile("p", "nvrtc", "13")) == "sm_90"
    assert architecture(Profile("p", "nvrtc", "13"), "sm_75") == "sm_75"
    assert architecture(Profile("p", "nvrtc", "13", arch="sm_80"), "sm_75") == "sm_80"
    assert check_arch("sm_90a") == "sm_90a"
    for wrong in ("sm90", "native", "compute_90", "sm_90; rm", "sm_"):
        with pytest.raises(UsageError, match="is no architecture"):
            check_arch(wrong)


@pytest.mark.parametrize(
    ("compiler", "extra"),
    [
        ("nvrtc", ["-lineinfo"]),
        ("nvrtc", ["-G", "-dopt=on"]),
        ("nvrtc", ["-DNAME", "-DVALUE=3.5f", "-UNAME"]),
        ("nvrtc", ["-std=c++20", "--maxrregcount=64", "-Xptxas=-O1", "--ptxas-options=-v"]),
        ("nvrtc", ["-Xptxas", "-O1"]),
        ("nvcc", ["-O0", "-Xcompiler", "-ffp-contract=off", "-Xcompiler=-O2,-Wall", "-Xptxas=-O0"]),
        ("nvcc", ["-Xcompiler=-ffast-math", "--expt-relaxed-constexpr", "-diag-suppress=177,20012"]),
    ],
)
def test_flags_without_side_effects_pass(compiler: str, extra: list[str]) -> None:
    assert flags.check(compiler, extra) == tuple(extra)


@pytest.mark.parametrize(
    ("flag", "reason"),
    [
        ("-o", "where output goes"),
        ("-o/tmp/x", "where output goes"),
        ("--output-file=x", "where output goes"),
        ("--output-directory=x", "where output goes"),
        ("--keep", "leaves files"),
        ("-keep-dir=x", "leaves files"),
        ("-include", "from inside the suite"),
        ("--pre-include=x.h", "from inside the suite"),
        ("-I/usr/include", "from inside the suite"),
        ("-I.", "from inside the suite"),
        ("-isystem=/x", "from inside the suite"),
        ("@flags.txt", "response file"),
        ("--options-file=f", "response file"),
        ("-optf=f", "response file"),
        ("-arch=sm_80", 'arch = "sm_XX"'),
        ("-gencode=arch=compute_80,code=sm_80", 'arch = "sm_XX"'),
        ("-dc", "changes what is built"),
        ("-rdc=true", "changes what is built"),
        ("--relocatable-device-code=true", "changes what is built"),
        ("-dlto", "changes what is built"),
        ("--run", "changes what is built"),
        ("-ccbin=clang", "exchanges a part"),
        ("--compiler-bindir=/x", "exchanges a part"),
        ("--libdevice-directory=/x", "exchanges a part"),
        ("-fmad=false", "write fmad"),
        ("--fmad=false", "write fmad"),
        ("-use_fast_math", "write fast_math"),
        ("--use_fast_math", "write fast_math"),
        ("-ftz=true", "write ftz"),
        ("-prec-div=false", "write prec_div"),
        ("-prec-sqrt=false", "write prec_sqrt"),
        ("--time=x.csv", "writes files or prints"),
        ("--fdevice-time-trace=x", "writes files or prints"),
        ("--create-pch=x", "writes files or prints"),
        ("--dryrun", "writes files or prints"),
        ("-lcublas", "nothing is linked"),
        ("-Xcompiler=-fplugin=/x.so", "not known to be free of side effects"),
        ("-Xcompiler=-Wl,-Map,x", "refused"),
        ("-Xcompiler=-O2,-o,x", "where output goes"),
        ("-Xcompiler=-save-temps", "leaves files"),
        ("-Xptxas=-o,x", "where output goes"),
        ("-Xptxas=--fmad=false", "write fmad"),
        ("-Xptxas", "the flag that it hands on is missing"),
        ("-lineinf", "did you mean -lineinfo"),
        ("kernel.cu", "it is no flag"),
        ("; rm -rf x", "no shell"),
        ("-DA=$(id)", "no shell"),
        ('-DFILE="/etc/passwd"', "not known to be free"),
        ("-G\n-o", "control characters"),
        ("-G ", "outer blanks"),
        ("", "empty"),
    ],
)  # fmt: skip
def test_flags_with_side_effects_are_refused_with_their_reason(flag: str, reason: str) -> None:
    with pytest.raises(UsageError) as caught:
        flags.check("nvcc", [flag])
    assert reason in str(caught.value)


@given(st.text(max_size=24) | st.from_regex(r"-{1,2}[a-zA-Z-]{1,12}(=.{0,8})?", fullmatch=True))
def test_whatever_is_accepted_names_no_file(flag: str) -> None:
    for compiler in ("nvrtc", "nvcc"):
        try:
            (accepted,) = flags.check(compiler, [flag])
        except UsageError:
            continue
        assert accepted == flag
        assert flag.startswith("-")
        assert not set(flag) & set("/\\@;|&<>`$\"' \n\t\0")
