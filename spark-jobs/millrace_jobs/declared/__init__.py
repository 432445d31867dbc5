"""How jobs are run that are one file each; the files are in `millrace_jobs.jobs`."""
