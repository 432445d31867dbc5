"""Ansible's own `linear` strategy over Mitogen, which keeps a Python on each host for a whole run.

By default each task starts one there: docs/adr/0021-one-python-on-each-host.md has what that took.
Mitogen is one of the toolkit's packages; this file only tells Ansible of it.
"""

import ansible_mitogen.loaders
import ansible_mitogen.strategy

DOCUMENTATION = """
name: mitogen_linear
short_description: the linear strategy, with one Python process on each host instead of one per task
description:
  - Tasks run, and are told of, as by P(ansible.builtin.linear#strategy).
author: Millrace
"""

LINEAR = ansible_mitogen.loaders.strategy_loader.get("linear", class_only=True)


class StrategyModule(ansible_mitogen.strategy.StrategyMixin, LINEAR):
    """All of it is Mitogen's."""
