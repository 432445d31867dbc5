"""The books: for each stream, what Kafka has against what the archive's commits say became of it.

account.py   what a batch owes, what it brought, and the difference; pure
commits.py   what a commit of an archive's table says; pure
keeper.py    reads commits as they come, and enters each
files.py     the archive's folder, by WebHDFS
witness.py   how many committed records Kafka has in a range
store.py     the entries, in Cassandra

See docs/adr/0038-the-books-are-always-open.md.
"""
