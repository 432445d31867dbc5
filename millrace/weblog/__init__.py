"""Web access logs of Apache, nginx and Caddy. Pure: text in, requests out."""

from millrace.weblog.formats import (
    KNOWN,
    Fit,
    Format,
    Reader,
    detect,
    fit,
    fits,
    format_of,
    parse_line,
)
from millrace.weblog.request import ABSENT, Malformed, Request, format_line

__all__ = [
    "ABSENT",
    "KNOWN",
    "Fit",
    "Format",
    "Malformed",
    "Reader",
    "Request",
    "detect",
    "fit",
    "fits",
    "format_line",
    "format_of",
    "parse_line",
]
