"""The policy pack: what must be true of a cloud environment before anything of it is made.

`rules` are pure functions, `settings` their data, `pack` hands them to Pulumi. Every rule is
mandatory: a violation fails the preview. What a preview can't know yet waits for `up`: there a
resource is judged before it is made, but the stack as a whole only at the end.
"""
