from millrace.cli.docs import write_docs


def test_generated_parts_of_the_documents_are_up_to_date():
    write_docs(check=True)
