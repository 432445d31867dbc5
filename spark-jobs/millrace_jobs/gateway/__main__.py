from millrace_jobs.gateway.commands import main

main()
