from millrace_gateway.commands import main

main()
