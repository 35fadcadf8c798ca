"""The page that `make demo` ends with, in a real browser: whole, with its pictures, light, dark, and narrow.

Skipped with a line where there is no Chromium: nothing else here needs a browser.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.image import imread

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("report")]
ROOT = Path(__file__).parents[2]
FLIGHTS = 3000
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
DEMO_SECONDS, BROWSER_SECONDS = 900, 60
BROWSER_TRIES = 4
"""Chromium without a screen now and then waits for itself for ever; it takes a second otherwise."""
TELL = """<script>
addEventListener("load", () => {
  const pictures = [...document.images].map((image) => {
    const box = image.getBoundingClientRect();
    return {complete: image.complete, width: image.naturalWidth, src: image.currentSrc.slice(0, 30),
            box: [box.left, box.top, box.right, box.bottom].map(Math.round)};
  });
  const told = {pictures, wide: document.documentElement.scrollWidth, window: innerWidth,
                high: document.documentElement.scrollHeight, dark: matchMedia("(prefers-color-scheme: dark)").matches,
                outside: performance.getEntriesByType("resource").filter((one) => !/^data/.test(one.name)).length};
  const found = document.createElement("pre");
  found.id = "told"; found.style.display = "none"; found.textContent = JSON.stringify(told);
  document.body.append(found);
});
</script>"""


@pytest.fixture(scope="module")
def browser() -> str:
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip(f"no browser ({', '.join(BROWSERS)}): on Debian, apt-get install chromium")
    return found


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory, browser: str) -> Path:
    """What a short run of the demo ends with."""
    out = tmp_path_factory.mktemp("demo") / "out"
    done = subprocess.run(
        [sys.executable, "-m", "demo", "--out", str(out), "--flights", str(FLIGHTS)],
        cwd=ROOT, capture_output=True, text=True, timeout=DEMO_SECONDS,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return out / "report.html"


def run(browser: str, folder: Path, *arguments: str) -> str:
    """What the browser prints."""
    for attempt in range(BROWSER_TRIES):
        command = [
            browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
            "--run-all-compositor-stages-before-draw", "--virtual-time-budget=10000",
            f"--user-data-dir={folder / f'profile-{attempt}'}", *arguments,
        ]  # fmt: skip
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=BROWSER_SECONDS)
        except subprocess.TimeoutExpired:
            continue
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout
    pytest.fail(f"{browser} did not end within {BROWSER_SECONDS} s, {BROWSER_TRIES} times")


def looked_at(browser: str, page: Path, folder: Path, width: int, *more: str) -> tuple[dict[str, Any], Any]:
    """What the page tells of itself, and its picture, as high as it is."""
    copy = folder / "page.html"
    copy.write_text(page.read_text().replace("</body>", f"{TELL}</body>"))
    dom = run(browser, folder, *more, f"--window-size={width},900", "--dump-dom", copy.as_uri())
    found = re.search(r'<pre id="told"[^>]*>(.*?)</pre>', dom, re.S)
    assert found, "the page has run"
    told: dict[str, Any] = json.loads(found[1].replace("&quot;", '"').replace("&amp;", "&"))
    shot = folder / "page.png"
    run(browser, folder, *more, f"--window-size={width},{told['high']}", f"--screenshot={shot}", page.as_uri())
    return told, imread(shot)[..., :3]


@pytest.mark.long
@pytest.mark.parametrize(
    ("width", "more", "dark"),
    [
        (1200, (), False),
        (500, (), False),
        (1200, ("--blink-settings=preferredColorScheme=0",), True),
    ],
    ids=["wide", "phone", "dark"],
)
def test_the_page_is_whole_and_its_pictures_are_drawn(
    browser: str, page: Path, tmp_path: Path, width: int, more: tuple[str, ...], dark: bool
) -> None:
    told, pixels = looked_at(browser, page, tmp_path, width, *more)
    assert told["dark"] is dark and told["outside"] == 0, "it needs nothing but itself"
    assert told["wide"] <= told["window"], "nobody has to scroll sideways"
    assert len(told["pictures"]) == 2
    background = pixels[2, 2]
    assert bool(background.mean() < 0.3) is dark
    for picture in told["pictures"]:
        assert picture["complete"] and picture["width"] > 300 and picture["src"].startswith("data:image/svg+xml")
        left, top, right, bottom = picture["box"]
        drawn = pixels[top:bottom, left:right]
        assert drawn.size and right - left > 0.8 * min(width, 900)
        other = (np.abs(drawn - background).max(axis=2) > 0.1).mean()
        assert 0.02 < other < 0.98, "neither blank nor one block"
        assert len(np.unique((drawn * 16).astype(int).reshape(-1, 3), axis=0)) > 20
    text = pixels[: told["pictures"][0]["box"][1]]
    assert (np.abs(text - background).max(axis=2) > 0.4).mean() > 0.005, "words stand above the pictures"
