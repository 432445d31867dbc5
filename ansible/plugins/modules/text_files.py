#!/usr/bin/python
"""Ansible module: text files of one directory, all of them in one task."""

import os
import tempfile

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = """
---
module: text_files
short_description: Text files of one directory, written together
description:
  - Writes those files whose content, owner or mode differs, each at once and whole. Other files of
    the directory are left alone.
  - One visit to the host, where a task for each file takes up to five for each of them.
options:
  directory:
    description: Where they lie; it is made, for everybody to read, if it isn't there.
    type: path
    required: true
  files:
    description: Path below the directory, to content.
    type: dict
    required: true
  owner:
    description: User that owns the files.
    type: str
    default: root
  group:
    description: Group that owns the files.
    type: str
    default: root
  mode:
    description: Permissions of the files, in octal digits.
    type: str
    default: "0644"
attributes:
  check_mode: {support: full, description: Reports what it would write}
  diff_mode: {support: full, description: Shows the lines that differ}
author: Millrace
"""


def content(path):
    """None if there is no such file, or a link in its place."""
    if os.path.islink(path) or not os.path.exists(path):
        return None
    with open(path, encoding="utf-8", errors="replace", newline="") as file:
        return file.read()


def write(module, path, text):
    """Another name first: whoever reads the file meanwhile sees the old one or the new one."""
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    handle, partial = tempfile.mkstemp(dir=module.tmpdir)
    with open(handle, "w", encoding="utf-8", newline="") as file:
        file.write(text)
    module.atomic_move(partial, path)


def main():
    module = AnsibleModule(
        argument_spec={
            "directory": {"type": "path", "required": True},
            "files": {"type": "dict", "required": True},
            "owner": {"type": "str", "default": "root"},
            "group": {"type": "str", "default": "root"},
            "mode": {"type": "str", "default": "0644"},
        },
        supports_check_mode=True,
    )
    attributes = {name: module.params[name] for name in ("owner", "group", "mode")}
    changed, diff = [], []
    for name, text in module.params["files"].items():
        path = os.path.join(module.params["directory"], name)
        if not isinstance(text, str):  # a template of nothing but a number makes a number
            module.fail_json(msg=f"{path}: {text!r} is {type(text).__name__}, not text")
        before = content(path)
        differs = before != text
        if differs:
            diff.append(
                {"before_header": path, "before": before or "", "after_header": path, "after": text}
            )
            if not module.check_mode:
                write(module, path, text)
        there = before is not None or not module.check_mode
        if there:
            wanted = module.load_file_common_arguments(attributes, path=path)
            differs = module.set_fs_attributes_if_different(wanted, differs)
        if differs:
            changed.append(path)
    module.exit_json(changed=bool(changed), paths=changed, diff=diff)


if __name__ == "__main__":
    main()
