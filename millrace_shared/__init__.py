"""What the jobs and their gateway, two programs of their own, must have the same.

It is packed into each program's zip and carries no packages of its own, so it needs no release, no
version and no order of deployment: whoever changes it restarts both.
"""
