"""What spark-submit runs; the package comes beside it as an archive."""

from millrace_jobs.runner import main

if __name__ == "__main__":
    main()
