"""The cluster's state at a glance: asked of every host over SSH, judged here."""
