"""Web access logs in the combined format of Apache and nginx. Pure: text in, requests out."""

from millrace.weblog.combined import Malformed, Request, format_line, parse_line

__all__ = ["Malformed", "Request", "format_line", "parse_line"]
