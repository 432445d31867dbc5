"""The policy pack: what must be true of a cloud environment before anything of it is made.

`rules` are pure functions, `demands` their data, `pack` hands them to Pulumi. Every rule is
mandatory: a violation fails the preview, and `pulumi up` with the pack makes nothing.
"""
