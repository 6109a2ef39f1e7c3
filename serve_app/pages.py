"""How pages are sent: whole in themselves, and a browser holds them to it."""

from collections.abc import Mapping

HTML = "text/html; charset=utf-8"
PAGE_HEADERS: Mapping[str, str] = {
    # A page loads nothing and talks to nobody but its own server.
    "Content-Security-Policy": "default-src 'none'; connect-src 'self'; img-src data:; "
    "style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
