"""Ansible's own `linear` strategy over Mitogen, which keeps a Python on each host for a whole run.

By default each task starts a Python there, which costs 0.2 s of a core for most modules: with 19
hosts on a laptop's two cores that was nearly all of a run's time. Of the toolkit's packages, which
Ansible finds here and nowhere else.
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
