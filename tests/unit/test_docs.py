import re

from millrace.cli.docs import ARCHITECTURE, write_docs
from millrace.common.paths import REPO


def test_generated_parts_of_the_documents_are_up_to_date():
    write_docs(check=True)


def test_every_file_that_the_architecture_names_is_there():
    named = set(re.findall(r"`([\w.-]+/[\w./-]+)`", ARCHITECTURE.read_text()))
    assert len(named) > 30
    assert {name for name in named if not (REPO / name).exists() and "." in name} == set()
