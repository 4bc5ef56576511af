"""Common code of all commands: options, session and files, output, progress, and exit codes."""
