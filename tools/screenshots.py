#!/usr/bin/env python3
"""The README's pictures from recorded evidence: `tools/screenshots.py docs/images BUNDLE…`.

The newest nightly of the bundles gives nightly.png, its sum_squares_tree under default and no-fmad fmad.png.
Needs Debian's chromium, and Playwright from the extra `dev`.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

WIDTH = 1280
# Of a page's first screen, and the most of one finding.
SCREEN, FINDING = 1100, 1700
KERNEL = "sum_squares_tree"


def reprodb(*words: str, codes: tuple[int, ...] = (0,)) -> str:
    """A command's standard output. Raises CalledProcessError for any other exit code."""
    command = [sys.executable, "-m", "reprodb", *words]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode not in codes:
        raise subprocess.CalledProcessError(done.returncode, words)
    return done.stdout


def pages(bundles: list[Path], folder: Path) -> dict[str, Path]:
    """The two pages, made from a database of these bundles."""
    database = ("--db", str(folder / "evidence.db"))
    for bundle in bundles:
        reprodb("import", str(bundle), *database)
    runs = json.loads(reprodb("runs", "--json", *database))["runs"]
    night = next(run["id"] for run in runs if run["kind"] == "nightly")
    reprodb("report", str(night), "--out", str(folder), *database)
    fmad = folder / "fmad.html"
    sides = (f"{night}:default:{KERNEL}", f"{night}:no-fmad:{KERNEL}")
    reprodb("diff", *sides, "--html", str(fmad), *database, codes=(0, 1))
    return {"nightly": folder / f"run-{night}.html", "fmad": fmad}


def shoot(found: dict[str, Path], out: Path) -> None:
    """The night's first screen, and of the diff the finding itself; both in the light."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("this needs Debian's chromium: apt-get install chromium")
    out.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": WIDTH, "height": SCREEN}, color_scheme="light")
        for name, path in found.items():
            page.goto(path.as_uri())
            clip = {"x": 0.0, "y": 0.0, "width": float(WIDTH), "height": float(SCREEN)}
            if name == "fmad":
                box = page.locator("article").first.bounding_box()
                clip |= {"y": box["y"] - 16, "height": min(box["height"] + 32, FINDING)}
            picture = out / f"{name}.png"
            page.screenshot(path=picture, clip=clip, full_page=True)
            print(f"{picture}: {picture.stat().st_size:,} bytes")
        browser.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("out", type=Path, help="where the pictures go: docs/images")
    parser.add_argument("bundles", type=Path, nargs="+", help="bundles with a nightly over the profiles")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        shoot(pages(asked.bundles, Path(folder)), asked.out)


if __name__ == "__main__":
    main()
