"""Millrace's insights over HTTP."""
