"""Pages in a real headless Chromium. `browser_or_skip` gives a browser; `Pages` opens pages from disk and, at its end,
asserts that none asked for anything, complained or failed."""

import contextlib
import shutil

import pytest


@contextlib.contextmanager
def browser_or_skip():
    playwright = pytest.importorskip("playwright.sync_api", reason="needs the wheel playwright")
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        pytest.skip("needs chromium")
    with playwright.sync_playwright() as api:
        browser = api.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield browser
        browser.close()


class Pages:
    def __init__(self, browser):
        self.browser = browser
        self.contexts = []
        self.faults = []

    def open(self, path, width=1200, height=900, dark=False, still=False, touch=False, scale=1):
        context = self.browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if dark else "light",
            reduced_motion="reduce" if still else "no-preference",
            has_touch=touch,
            device_scale_factor=scale,
        )
        context.set_offline(True)
        self.contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(10000)
        own = path.resolve().as_uri()
        page.on("request", lambda request: self.faults.append(request.url) if request.url != own and not request.url.startswith("data:") else None)
        page.on("console", lambda message: self.faults.append(message.text) if message.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.goto(own)
        return page

    def close(self):
        for context in self.contexts:
            context.close()
        assert not self.faults, self.faults
