"""The audit: what producers had acknowledged, against every place where results are.

The truth is computed anew from the ledger, with plain counting and no estimate; events of others
in the same windows are taken from the archive. Zero lost, zero twice is the only passing figure.
"""
